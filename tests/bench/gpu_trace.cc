// When was the GPU at work? A library that the CUDA driver loads into a program (CUDA_INJECTION64_PATH) and that writes every
// interval of work to the file $DEEPENCODER_GPU_TRACE as the program ends: pairs of uint64_t, nanoseconds. Graph launches are
// one interval each, which costs the program next to nothing; kernels and copies outside of graphs are traced one by one.
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;

struct Trace {
  std::mutex mutex;
  std::vector<uint64_t> times;  // begin, end, begin, end, ...
};
Trace& TheTrace() {
  static auto* const trace = new Trace;  // used until the process is gone
  return *trace;
}

template <typename Record>
void Add(const CUpti_Activity* activity) {
  const auto* record = reinterpret_cast<const Record*>(activity);
  if (record->end > record->start)
    TheTrace().times.insert(TheTrace().times.end(), {record->start, record->end});
}

void CUPTIAPI Request(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = kBufferBytes;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *most_records = 0;  // as many as fit
}

void CUPTIAPI Complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(TheTrace().mutex);
  CUpti_Activity* activity = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS) {
    switch (activity->kind) {
      case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
        Add<CUpti_ActivityGraphTrace2>(activity);
        break;
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        Add<CUpti_ActivityKernel10>(activity);
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        Add<CUpti_ActivityMemcpy6>(activity);
        break;
      default:
        break;
    }
  }
  std::free(buffer);
}

void Write() {
  cuptiActivityFlushAll(1);
  const char* path = std::getenv("DEEPENCODER_GPU_TRACE");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "wb");
  if (file == nullptr) return;
  const std::lock_guard lock(TheTrace().mutex);
  const std::vector<uint64_t>& times = TheTrace().times;
  std::fwrite(times.data(), sizeof(times[0]), times.size(), file);
  std::fclose(file);
}

}  // namespace

// Called by the driver.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(Request, Complete) != CUPTI_SUCCESS) return 1;
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_GRAPH_TRACE, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
        CUPTI_ACTIVITY_KIND_MEMCPY}) {
    cuptiActivityEnable(kind);
  }
  std::atexit(Write);
  return 1;
}
