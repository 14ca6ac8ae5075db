// A libnvidia-ml.so.1 for tests: the functions that server/metrics/nvml.cc looks for, with NVML's
// signatures. FAKE_NVML_OLD makes an old driver's, which lacks some and calls the reasons otherwise.
#include "tests/server/metrics/fake_nvml.h"

#include <cstdio>
#include <cstring>

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kNotFound = 6;

FakeNvml& State() {
  static auto* const state = new FakeNvml;  // for threads that are left behind
  return *state;
}

int Answer(const char* function) { return State().failing == function ? kNotSupported : kSuccess; }

template <typename Value>
int Answer(const char* function, Value value, Value* out) {
  *out = value;
  return Answer(function);
}

int Text(const char* function, const char* text, char* out, unsigned size) {
  std::snprintf(out, size, "%s", text);
  return Answer(function);
}

void HangIfAsked() {
  FakeNvml& state = State();
  std::unique_lock lock(state.mutex);
  ++state.hanging;
  state.changed.notify_all();
  state.changed.wait(lock, [&] { return !state.hang; });
  --state.hanging;
  state.changed.notify_all();
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT FakeNvml* fake_nvml_state() { return &State(); }

EXPORT int nvmlInit_v2() {
  ++State().inits;
  return State().init_code;
}
EXPORT int nvmlShutdown() {
  ++State().shutdowns;
  return kSuccess;
}
EXPORT const char* nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Error"; }
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  static int gpu;
  *device = &gpu;
  return std::strcmp(address, "0000:3b:00.0") == 0 ? kSuccess : kNotFound;
}
EXPORT int nvmlDeviceGetName(void*, char* text, unsigned size) {
  return Text("nvmlDeviceGetName", "Fake GPU", text, size);
}
EXPORT int nvmlDeviceGetUtilizationRates(void*, unsigned* gpu_and_memory) {
  HangIfAsked();
  ++State().readings;
  gpu_and_memory[1] = 7;
  return Answer("nvmlDeviceGetUtilizationRates", State().utilization.load(), gpu_and_memory);
}
EXPORT int nvmlDeviceGetMemoryInfo(void*, unsigned long long* total_free_used) {
  total_free_used[1] = 90ULL << 30, total_free_used[2] = 10ULL << 30;
  return Answer("nvmlDeviceGetMemoryInfo", 100ULL << 30, total_free_used);
}
EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  return Answer("nvmlDeviceGetPowerUsage", 351500U, milliwatts);
}
EXPORT int nvmlDeviceGetClockInfo(void*, int type, unsigned* megahertz) {
  return Answer("nvmlDeviceGetClockInfo", type == 1 ? 1980U : 3201U, megahertz);
}
#ifdef FAKE_NVML_OLD
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) {
  return Answer("nvmlDeviceGetCurrentClocksThrottleReasons", State().reasons.load(), bits);
}
#else
EXPORT int nvmlDeviceGetUUID(void*, char* text, unsigned size) {
  return Text("nvmlDeviceGetUUID", "GPU-11111111-2222-3333-4444-555555555555", text, size);
}
EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return Text("nvmlSystemGetDriverVersion", "580.00", text, size);
}
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  return Answer("nvmlDeviceGetEnforcedPowerLimit", 700000U, milliwatts);
}
EXPORT int nvmlDeviceGetTemperature(void*, int sensor, unsigned* celsius) {
  return Answer("nvmlDeviceGetTemperature", sensor == 0 ? 55U : 0U, celsius);
}
EXPORT int nvmlDeviceGetTotalEccErrors(void*, int type, int counter, unsigned long long* count) {
  return Answer("nvmlDeviceGetTotalEccErrors",
                counter != 0 ? 99ULL
                : type == 0  ? 3ULL
                             : 1ULL,
                count);
}
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void*, unsigned long long* bits) {
  return Answer("nvmlDeviceGetCurrentClocksEventReasons", State().reasons.load(), bits);
}
#endif
