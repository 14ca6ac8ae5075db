#include "server/metrics/nvml.h"

#include <dlfcn.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

// NVML's names and values, as its API reference gives them.
using NvmlReturn = int;
constexpr NvmlReturn kNvmlSuccess = 0;
constexpr int kTemperatureGpu = 0;
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr int kCorrectedErrors = 0, kUncorrectedErrors = 1;
constexpr int kVolatileCounters = 0;  // since the driver was loaded

struct NvmlUtilization {
  unsigned int gpu, memory;  // percent of the time that a kernel ran, that memory was moved
};
struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};

// Bits of the clocks' event reasons that say that clocks are lower than they could be. (Those of an idle
// GPU and of clocks that somebody set are not among them.)
struct ThrottleReason {
  unsigned long long bit;
  const char* name;
};
constexpr ThrottleReason kThrottleReasons[] = {
    {0x04, "power_cap"},        {0x08, "hardware_slowdown"}, {0x10, "sync_boost"},
    {0x20, "software_thermal"}, {0x40, "hardware_thermal"},  {0x80, "power_brake"},
};

constexpr double kMilli = 1e-3, kMega = 1e6, kPercent = 1e-2;

}  // namespace

// Members are null where the library has no such function; see the API reference for what each does.
struct Nvml::Functions {
  NvmlReturn (*init)();
  NvmlReturn (*shutdown)();
  const char* (*error_string)(NvmlReturn code);
  NvmlReturn (*find)(const char* pci_bus_id, Device* device);
  NvmlReturn (*name)(Device device, char* text, unsigned int size);
  NvmlReturn (*uuid)(Device device, char* text, unsigned int size);
  NvmlReturn (*driver_version)(char* text, unsigned int size);
  NvmlReturn (*utilization)(Device device, NvmlUtilization* percent);
  NvmlReturn (*memory)(Device device, NvmlMemory* bytes);
  NvmlReturn (*power)(Device device, unsigned int* milliwatts);
  NvmlReturn (*power_limit)(Device device, unsigned int* milliwatts);
  NvmlReturn (*temperature)(Device device, int sensor, unsigned int* celsius);
  NvmlReturn (*clock)(Device device, int type, unsigned int* megahertz);
  NvmlReturn (*ecc_errors)(Device device, int type, int counter, unsigned long long* count);
  NvmlReturn (*event_reasons)(Device device, unsigned long long* bits);

  std::string Why(NvmlReturn code) const {
    return error_string != nullptr ? error_string(code) : absl::StrCat("NVML error ", code);
  }
};

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::UnavailableError(dlerror());
  auto functions = std::make_unique<Functions>();
  const auto find = [handle](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
  };
  find("nvmlInit_v2", functions->init);
  find("nvmlShutdown", functions->shutdown);
  find("nvmlErrorString", functions->error_string);
  find("nvmlDeviceGetHandleByPciBusId_v2", functions->find);
  find("nvmlDeviceGetName", functions->name);
  find("nvmlDeviceGetUUID", functions->uuid);
  find("nvmlSystemGetDriverVersion", functions->driver_version);
  find("nvmlDeviceGetUtilizationRates", functions->utilization);
  find("nvmlDeviceGetMemoryInfo", functions->memory);
  find("nvmlDeviceGetPowerUsage", functions->power);
  find("nvmlDeviceGetEnforcedPowerLimit", functions->power_limit);
  find("nvmlDeviceGetTemperature", functions->temperature);
  find("nvmlDeviceGetClockInfo", functions->clock);
  find("nvmlDeviceGetTotalEccErrors", functions->ecc_errors);
  find("nvmlDeviceGetCurrentClocksEventReasons", functions->event_reasons);
  if (functions->event_reasons == nullptr) {  // its name before driver 535
    find("nvmlDeviceGetCurrentClocksThrottleReasons", functions->event_reasons);
  }
  if (functions->init == nullptr || functions->find == nullptr) {
    return absl::UnavailableError(
        absl::StrCat(library, " has no nvmlInit_v2 or nvmlDeviceGetHandleByPciBusId_v2"));
  }
  if (const NvmlReturn code = functions->init(); code != kNvmlSuccess) {
    return absl::UnavailableError(absl::StrCat("nvmlInit_v2: ", functions->Why(code)));
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

Nvml::Nvml(std::unique_ptr<const Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() {
  if (functions_->shutdown != nullptr) functions_->shutdown();
}

absl::StatusOr<Nvml::Device> Nvml::Find(const std::string& pci_bus_id) const {
  Device device = nullptr;
  const NvmlReturn code = functions_->find(pci_bus_id.c_str(), &device);
  if (code == kNvmlSuccess) return device;
  return absl::NotFoundError(absl::StrCat("GPU ", pci_bus_id, ": ", functions_->Why(code)));
}

GpuIdentity Nvml::Identify(Device device) const {
  char name[96] = {}, uuid[96] = {}, driver[80] = {};  // NVML's own bounds
  GpuIdentity identity;
  if (functions_->name != nullptr && functions_->name(device, name, sizeof(name)) == kNvmlSuccess) {
    identity.name = name;
  }
  if (functions_->uuid != nullptr && functions_->uuid(device, uuid, sizeof(uuid)) == kNvmlSuccess) {
    identity.uuid = uuid;
  }
  if (functions_->driver_version != nullptr &&
      functions_->driver_version(driver, sizeof(driver)) == kNvmlSuccess) {
    identity.driver = driver;
  }
  return identity;
}

std::vector<GpuReading> Nvml::Read(Device device) const {
  std::vector<GpuReading> readings;
  const auto add = [&](MetricId id, const char* detail, double unit, auto function, auto... of) {
    unsigned int value = 0;
    if (function == nullptr || function(device, of..., &value) != kNvmlSuccess) return;
    readings.push_back({id, detail, value * unit});
  };
  NvmlUtilization busy = {};
  if (functions_->utilization != nullptr &&
      functions_->utilization(device, &busy) == kNvmlSuccess) {
    readings.push_back({MetricId::kGpuUtilization, nullptr, busy.gpu * kPercent});
  }
  ReadMemory(device, readings);
  add(MetricId::kGpuPower, nullptr, kMilli, functions_->power);
  add(MetricId::kGpuPowerLimit, nullptr, kMilli, functions_->power_limit);
  add(MetricId::kGpuTemperature, nullptr, 1, functions_->temperature, kTemperatureGpu);
  add(MetricId::kGpuClock, "sm", kMega, functions_->clock, kClockSm);
  add(MetricId::kGpuClock, "memory", kMega, functions_->clock, kClockMemory);
  ReadThrottling(device, readings);
  ReadEccErrors(device, readings);
  return readings;
}

void Nvml::ReadMemory(Device device, std::vector<GpuReading>& readings) const {
  NvmlMemory memory = {};
  if (functions_->memory == nullptr || functions_->memory(device, &memory) != kNvmlSuccess) return;
  readings.push_back({MetricId::kGpuMemoryUsed, nullptr, static_cast<double>(memory.used)});
  readings.push_back({MetricId::kGpuMemoryTotal, nullptr, static_cast<double>(memory.total)});
}

void Nvml::ReadEccErrors(Device device, std::vector<GpuReading>& readings) const {
  if (functions_->ecc_errors == nullptr) return;
  for (const auto& [type, name] :
       {std::pair{kCorrectedErrors, "corrected"}, {kUncorrectedErrors, "uncorrected"}}) {
    unsigned long long count = 0;
    if (functions_->ecc_errors(device, type, kVolatileCounters, &count) != kNvmlSuccess) continue;
    readings.push_back({MetricId::kGpuEccErrors, name, static_cast<double>(count)});
  }
}

void Nvml::ReadThrottling(Device device, std::vector<GpuReading>& readings) const {
  unsigned long long bits = 0;
  if (functions_->event_reasons == nullptr ||
      functions_->event_reasons(device, &bits) != kNvmlSuccess) {
    return;
  }
  for (const ThrottleReason& reason : kThrottleReasons) {
    readings.push_back(
        {MetricId::kGpuThrottled, reason.name, (bits & reason.bit) != 0 ? 1.0 : 0.0});
  }
}

}  // namespace deepencoder
