// The C table over the backend's classes: checks handles, turns Status into codes, lets no exception out.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "encoder/backend/cuda_abi.h"
#include "encoder/cuda/memory.h"
#include "encoder/cuda/slot.h"
#include "encoder/cuda/views.h"
#include "encoder/cuda/weights.h"
#include "encoder/version/version.h"
#include "kernels/arguments.h"
#include "kernels/linear.h"

using deepencoder::cuda::BatchOrder;
using deepencoder::cuda::Code;
using deepencoder::cuda::FreeMemory;
using deepencoder::cuda::LoadedCode;
using deepencoder::cuda::MemoryAccount;
using deepencoder::cuda::MemoryKind;
using deepencoder::cuda::PlanSet;
using deepencoder::cuda::Slot;
using deepencoder::cuda::Status;
using deepencoder::cuda::ViewPool;
using deepencoder::cuda::Views;
using deepencoder::cuda::Weights;
using deepencoder::kernels::InvalidArgument;

// Members are destroyed from the last to the first: plans before weights, all before the account.
struct DeBackend {
  int device = 0;
  bool graphs = true;
  MemoryAccount account;
  Weights weights;
  std::unique_ptr<deepencoder::kernels::LinearContext> linears;
  PlanSet plans;
  std::unique_ptr<BatchOrder> order;
  std::unique_ptr<ViewPool> views;
  std::mutex creating;  // captures are made one after another
};

namespace {

// DeSlot and DeViews are never defined: handles are the classes themselves.
Slot* Of(DeSlot* slot) { return reinterpret_cast<Slot*>(slot); }
const Views* Of(const DeViews* views) { return reinterpret_cast<const Views*>(views); }

// Cut to what fits, ended by 0.
template <size_t size>
void CopyText(std::string_view text, char (&to)[size]) {
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

DeCode Report(const Status& status, DeError* error) {
  CopyText(status.message(), error->message);
  return static_cast<DeCode>(status.code());
}

static_assert(static_cast<int>(Code::kOk) == DE_OK &&
              static_cast<int>(Code::kInvalidArgument) == DE_INVALID_ARGUMENT &&
              static_cast<int>(Code::kUnsupported) == DE_UNSUPPORTED &&
              static_cast<int>(Code::kResourceExhausted) == DE_RESOURCE_EXHAUSTED &&
              static_cast<int>(Code::kDevice) == DE_DEVICE);

// Runs `call`, which returns Status.
template <typename Call>
DeCode Guard(DeError* error, const Call& call) {
  try {
    return Report(call(), error);
  } catch (const std::bad_alloc&) {
    return Report(Status(Code::kResourceExhausted, "out of host memory"), error);
  } catch (const std::exception& exception) {
    return Report(Status(Code::kDevice, exception.what()), error);
  }
}

Status CheckAscending(const int32_t* values, int32_t count, const char* name) {
  if (values == nullptr || count < 1) return InvalidArgument(std::string(name) + ": none given");
  for (int32_t i = 0; i < count; ++i) {
    DEEPENCODER_RETURN(deepencoder::kernels::CheckRange(values[i], 1, 4096, name));
    if (i > 0 && values[i] <= values[i - 1])
      return InvalidArgument(std::string(name) + " must ascend");
  }
  return {};
}

Status CheckOptions(const DeBackendOptions& options) {
  if (options.compute != DE_BF16 && options.compute != DE_FP16) {
    return InvalidArgument("the CUDA backend computes in bf16 or fp16");
  }
  DEEPENCODER_RETURN(CheckAscending(options.buckets, options.bucket_count, "batch buckets"));
  DEEPENCODER_RETURN(CheckAscending(options.sides, options.side_count, "view sides"));
  for (int32_t i = 0; i < options.side_count; ++i) {
    if (!deepencoder::IsViewSide(options.sides[i])) {
      return InvalidArgument("view side " + std::to_string(options.sides[i]) +
                             " is not 512, 640, 768, 1024 or 1280");
    }
  }
  DEEPENCODER_RETURN(deepencoder::kernels::CheckRange(options.sam_depth, 1, 1024, "SAM depth"));
  DEEPENCODER_RETURN(deepencoder::kernels::CheckRange(options.clip_layers, 1, 1024, "CLIP layers"));
  if (options.global_block_count > 0 && options.global_blocks == nullptr)
    return InvalidArgument("global_blocks is null");
  return {};
}

Status CreateBackend(const DeBackendOptions& options, const DeTensor* tensors, int32_t count,
                     DeBackend** out) {
  DEEPENCODER_RETURN(CheckOptions(options));
  DEEPENCODER_CUDA_RETURN(cudaSetDevice(options.device));
  int64_t free_before = 0, free_after = 0;
  DEEPENCODER_RETURN(FreeMemory(&free_before));
  auto backend = std::make_unique<DeBackend>();
  backend->device = options.device;
  backend->graphs = options.graphs != 0;
  deepencoder::cuda::WeightsSource source;
  source.type = static_cast<deepencoder::DType>(options.compute);
  source.model.sam_depth = options.sam_depth;
  source.model.clip_layers = options.clip_layers;
  source.model.global_blocks.assign(options.global_blocks,
                                    options.global_blocks + options.global_block_count);
  source.sides.assign(options.sides, options.sides + options.side_count);
  source.tensors = tensors, source.tensor_count = count;
  source.release = options.release, source.release_context = options.release_context;
  DEEPENCODER_RETURN(LoadWeights(source, &backend->account, &backend->weights));
  DEEPENCODER_RETURN(deepencoder::kernels::LinearContext::Create({}, &backend->linears));
  const std::vector<int> buckets(options.buckets, options.buckets + options.bucket_count);
  DEEPENCODER_RETURN(
      PlanSet::Create(backend->weights, source.sides, buckets, *backend->linears, &backend->plans));
  backend->linears->ReleaseScratch();
  DEEPENCODER_RETURN(BatchOrder::Create(&backend->order));
  // What is gone beside the weights, the driver took for kernels: it loads each when it is first needed, here to be
  // measured. (Another process' allocations meanwhile would be counted too.)
  DEEPENCODER_RETURN(FreeMemory(&free_after));
  const auto weights = static_cast<int64_t>(backend->account.current(MemoryKind::kWeights));
  LoadedCode(options.device) += std::max<int64_t>(free_before - free_after - weights, 0);
  DEEPENCODER_RETURN(ViewPool::Create(options.device, &backend->account, &backend->views));
  *out = backend.release();
  return {};
}

DeCode DeviceCount(int32_t* count, DeError* error) {
  return Guard(error, [&]() -> Status {
    int devices = 0;
    DEEPENCODER_CUDA_RETURN(cudaGetDeviceCount(&devices));
    *count = devices;
    return {};
  });
}

DeCode DeviceInfo(int32_t device, DeDeviceInfo* info, DeError* error) {
  return Guard(error, [&]() -> Status {
    cudaDeviceProp properties;
    DEEPENCODER_CUDA_RETURN(cudaGetDeviceProperties(&properties, device));
    *info = {};
    CopyText(properties.name, info->name);
    info->capability_major = properties.major, info->capability_minor = properties.minor;
    info->memory_total = properties.totalGlobalMem;
    return {};
  });
}

DeCode Create(const DeBackendOptions* options, const DeTensor* tensors, int32_t count,
              DeBackend** backend, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (options == nullptr || tensors == nullptr || backend == nullptr)
      return InvalidArgument("an argument is null");
    return CreateBackend(*options, tensors, count, backend);
  });
}

void Destroy(DeBackend* backend) {
  if (backend == nullptr) return;
  cudaSetDevice(backend->device);
  delete backend;
}

DeCode MakeViews(DeBackend* backend, const uint8_t* rgb, int32_t width, int32_t height,
                 const DeResizeJob* jobs, int32_t job_count, DeViews** views, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (backend == nullptr || views == nullptr) return InvalidArgument("an argument is null");
    std::unique_ptr<Views> made;
    DEEPENCODER_RETURN(
        Views::Create(backend->views.get(), rgb, width, height, jobs, job_count, &made));
    *views = reinterpret_cast<DeViews*>(made.release());
    return {};
  });
}

int32_t ViewCount(const DeViews* views) { return Of(views)->count(); }
int32_t ViewSide(const DeViews* views, int32_t view) { return Of(views)->side(view); }
uint64_t ViewBytes(const DeViews* views) { return Of(views)->bytes(); }

DeCode ReadView(const DeViews* handle, int32_t view, uint8_t* rgb, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (handle == nullptr || rgb == nullptr) return InvalidArgument("an argument is null");
    const Views& views = *Of(handle);
    DEEPENCODER_RETURN(deepencoder::kernels::CheckRange(view, 0, views.count() - 1, "view"));
    DEEPENCODER_CUDA_RETURN(cudaSetDevice(views.device()));
    const size_t bytes = size_t{3} * views.side(view) * views.side(view);
    DEEPENCODER_CUDA_RETURN(cudaMemcpy(rgb, views.data(view), bytes, cudaMemcpyDeviceToHost));
    return {};
  });
}

void DestroyViews(DeViews* views) { delete reinterpret_cast<Views*>(views); }

DeCode CreateSlot(DeBackend* backend, DeSlot** slot, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (backend == nullptr || slot == nullptr) return InvalidArgument("an argument is null");
    const std::lock_guard lock(backend->creating);
    std::unique_ptr<Slot> made;
    DEEPENCODER_RETURN(Slot::Create(backend->device, backend->plans, backend->graphs,
                                    backend->order.get(), &backend->account, &made));
    *slot = reinterpret_cast<DeSlot*>(made.release());
    return {};
  });
}

void DestroySlot(DeSlot* slot) { delete Of(slot); }

DeCode Encode(DeSlot* slot, int32_t side, const DeEncodeItem* items, int32_t count,
              DeEncodeStats* stats, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (slot == nullptr) return InvalidArgument("slot is null");
    return Of(slot)->Encode(side, items, count, stats, [] {});
  });
}

DeCode Poison(DeSlot* slot, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (slot == nullptr) return InvalidArgument("slot is null");
    return Of(slot)->Poison();
  });
}

DeCode Trace(DeSlot* slot, DeTrace trace, void* context, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (slot == nullptr) return InvalidArgument("slot is null");
    Of(slot)->Trace(trace, context);
    return {};
  });
}

int32_t Memory(const DeBackend* backend, DeMemoryUse* uses, int32_t capacity) {
  int32_t count = 0;
  const auto add = [&](std::string_view kind, uint64_t current, uint64_t peak) {
    if (count < capacity) {
      uses[count] = {};
      CopyText(kind, uses[count].kind);
      uses[count].current = current, uses[count].peak = peak;
    }
    ++count;
  };
  for (int i = 0; i < deepencoder::cuda::kMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    add(Name(kind), backend->account.current(kind), backend->account.peak(kind));
  }
  const auto code = static_cast<uint64_t>(LoadedCode(backend->device).load());
  add("code", code, code);
  return count;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const DeCudaApi* deepencoder_cuda_api(void) {
  static constexpr DeCudaApi kApi = {
      .version = DE_CUDA_ABI_VERSION,
      .device_count = DeviceCount,
      .device_info = DeviceInfo,
      .create = Create,
      .destroy = Destroy,
      .make_views = MakeViews,
      .view_count = ViewCount,
      .view_side = ViewSide,
      .view_bytes = ViewBytes,
      .read_view = ReadView,
      .destroy_views = DestroyViews,
      .create_slot = CreateSlot,
      .destroy_slot = DestroySlot,
      .encode = Encode,
      .poison = Poison,
      .trace = Trace,
      .memory = Memory,
  };
  return &kApi;
}

extern "C" __attribute__((visibility("default"))) DeCode deepencoder_cuda_pci_bus_id(
    int32_t device, char* text, int32_t size, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (text == nullptr) return InvalidArgument("text is null");
    DEEPENCODER_CUDA_RETURN(cudaDeviceGetPCIBusId(text, size, device));
    return {};
  });
}

extern "C" __attribute__((visibility("default"))) DeCode deepencoder_cuda_free_memory(
    int32_t device, uint64_t* bytes, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (bytes == nullptr) return InvalidArgument("bytes is null");
    int64_t free = 0;
    DEEPENCODER_CUDA_RETURN(cudaSetDevice(device));
    DEEPENCODER_RETURN(FreeMemory(&free));
    *bytes = static_cast<uint64_t>(free);
    return {};
  });
}

extern "C" __attribute__((visibility("default"))) DeCode deepencoder_cuda_encode_ahead(
    DeSlot* slot, int32_t side, const DeEncodeItem* items, int32_t count, DeEncodeStats* stats,
    void (*computed)(void* context), void* context, DeError* error) {
  return Guard(error, [&]() -> Status {
    if (slot == nullptr) return InvalidArgument("slot is null");
    if (computed == nullptr) return InvalidArgument("computed is null");
    return Of(slot)->Encode(side, items, count, stats, [&] { computed(context); });
  });
}

extern "C" __attribute__((visibility("default"))) const char* deepencoder_cuda_build(void) {
  static const auto& build = *new std::string(std::string(deepencoder::kBuildVersion) + " (" +
                                              deepencoder::kBuildCommit + ")");
  return build.c_str();
}
