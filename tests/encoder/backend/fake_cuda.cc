// A libdeepencoder_cuda.so for tests without a GPU: the whole interface of encoder/backend/cuda_abi.h, with
// rows of zeros. Every batch is a graph hit. FAKE_CUDA_OLD leaves out what came after version 1.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "encoder/backend/cuda_abi.h"

struct DeViews {
  std::vector<int32_t> sides;
};
struct DeBackend {
  std::vector<int32_t> buckets;
};
struct DeSlot {
  const DeBackend* backend;
};

namespace {

constexpr int kPixelsARow = 64, kWidth = 1280;  // of the view's side, of an embedding

DeCode DeviceCount(int32_t* count, DeError*) {
  *count = 1;
  return DE_OK;
}

DeCode DeviceInfo(int32_t, DeDeviceInfo* info, DeError*) {
  *info = {};
  std::snprintf(info->name, sizeof(info->name), "Fake GPU");
  info->capability_major = 9;
  info->memory_total = uint64_t{100} << 30;
  return DE_OK;
}

DeCode Create(const DeBackendOptions* options, const DeTensor* tensors, int32_t count,
              DeBackend** backend, DeError*) {
  for (int32_t i = 0; i < count && options->release != nullptr; ++i) {
    options->release(options->release_context, tensors[i].name);
  }
  *backend = new DeBackend{{options->buckets, options->buckets + options->bucket_count}};
  return DE_OK;
}
void Destroy(DeBackend* backend) { delete backend; }

DeCode MakeViews(DeBackend*, const uint8_t*, int32_t, int32_t, const DeResizeJob* jobs,
                 int32_t count, DeViews** views, DeError*) {
  *views = new DeViews;
  for (int32_t i = 0; i < count; ++i) {
    (*views)->sides.insert((*views)->sides.end(), jobs[i].columns * jobs[i].rows, jobs[i].side);
  }
  return DE_OK;
}
int32_t ViewCount(const DeViews* views) { return static_cast<int32_t>(views->sides.size()); }
int32_t ViewSide(const DeViews* views, int32_t view) { return views->sides[view]; }
uint64_t ViewBytes(const DeViews* views) {
  uint64_t bytes = 0;
  for (const int32_t side : views->sides) bytes += uint64_t{3} * side * side;
  return bytes;
}
DeCode ReadView(const DeViews* views, int32_t view, uint8_t* rgb, DeError*) {
  const size_t side = views->sides[view];
  std::memset(rgb, 0, 3 * side * side);
  return DE_OK;
}
void DestroyViews(DeViews* views) { delete views; }

DeCode CreateSlot(DeBackend* backend, DeSlot** slot, DeError*) {
  *slot = new DeSlot{backend};
  return DE_OK;
}
void DestroySlot(DeSlot* slot) { delete slot; }

DeCode Encode(DeSlot* slot, int32_t side, const DeEncodeItem* items, int32_t count,
              DeEncodeStats* stats, DeError*) {
  const int32_t lines = side / kPixelsARow;
  for (int32_t i = 0; i < count; ++i) {
    const size_t line_bytes = size_t{items[i].dtype == DE_FP32 ? 4U : 2U} * lines * kWidth;
    for (int32_t y = 0; y < lines; ++y) {
      std::memset(static_cast<char*>(items[i].rows) + y * items[i].line_stride, 0, line_bytes);
    }
  }
  const std::vector<int32_t>& buckets = slot->backend->buckets;
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), count);
  *stats = {bucket == buckets.end() ? count : *bucket, 1, 1e-3 * count};
  return DE_OK;
}
DeCode Poison(DeSlot*, DeError*) { return DE_OK; }
DeCode Trace(DeSlot*, DeTrace, void*, DeError*) { return DE_OK; }  // no operations to tell of

int32_t Memory(const DeBackend*, DeMemoryUse* uses, int32_t capacity) {
  constexpr DeMemoryUse kUses[] = {{"weights", 800 << 20, 800 << 20},
                                   {"workspace", 300 << 20, 300 << 20}};
  std::copy_n(kUses, std::min(capacity, 2), uses);
  return 2;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const DeCudaApi* deepencoder_cuda_api(void) {
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

#ifndef FAKE_CUDA_OLD
EXPORT DeCode deepencoder_cuda_pci_bus_id(int32_t, char* text, int32_t size, DeError*) {
  std::snprintf(text, size, "0000:3b:00.0");
  return DE_OK;
}

EXPORT DeCode deepencoder_cuda_free_memory(int32_t, uint64_t* bytes, DeError*) {
  *bytes = uint64_t{80} << 30;
  return DE_OK;
}

EXPORT DeCode deepencoder_cuda_encode_ahead(DeSlot* slot, int32_t side, const DeEncodeItem* items,
                                            int32_t count, DeEncodeStats* stats,
                                            void (*computed)(void* context), void* context,
                                            DeError* error) {
  computed(context);
  return Encode(slot, side, items, count, stats, error);
}

EXPORT const char* deepencoder_cuda_build(void) { return "0.0.1 (fake)"; }
#endif
