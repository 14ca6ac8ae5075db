// A libdeepencoder_cuda.so for tests without a GPU: the whole interface of encoder/backend/cuda_abi.h, with
// rows that depend on the image and the view alone. Every batch is a graph hit. As a real one, a slot has two places
// for rows, which its calls use in turn: a caller that begins a third call too soon gets wrong rows.
// FAKE_CUDA_OLD leaves out what came after version 1.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "encoder/backend/cuda_abi.h"

struct DeViews {
  std::vector<int32_t> sides;
  std::vector<uint32_t> seeds;  // of the views' rows
};
struct DeBackend {
  std::vector<int32_t> buckets;
};
struct DeSlot {
  const DeBackend* backend;
  std::vector<uint16_t> places[2];
  int next = 0;
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

DeCode MakeViews(DeBackend*, const uint8_t* rgb, int32_t width, int32_t height,
                 const DeResizeJob* jobs, int32_t count, DeViews** views, DeError*) {
  uint32_t sum = 2166136261U;  // FNV-1a
  for (int64_t i = 0; i < int64_t{3} * width * height; ++i) sum = (sum ^ rgb[i]) * 16777619U;
  *views = new DeViews;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t here = jobs[i].columns * jobs[i].rows;
    (*views)->sides.insert((*views)->sides.end(), here, jobs[i].side);
    for (int32_t j = 0; j < here; ++j) (*views)->seeds.push_back(sum += 0x9E3779B9U);
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
  *slot = new DeSlot{.backend = backend, .places = {}};
  return DE_OK;
}
void DestroySlot(DeSlot* slot) { delete slot; }

size_t WordsALine(int32_t side, int32_t dtype) {
  return size_t{dtype == DE_FP32 ? 2U : 1U} * (side / kPixelsARow) * kWidth;
}

// "On the device": every word of a view's rows is its seed's, and a finite number of any type.
void Compute(int32_t side, const DeEncodeItem* items, int32_t count, std::vector<uint16_t>* place) {
  place->clear();
  for (int32_t i = 0; i < count; ++i) {
    const uint32_t seed = items[i].views->seeds[items[i].view];
    const size_t words = side / kPixelsARow * WordsALine(side, items[i].dtype);
    for (size_t word = 0; word < words; ++word) {
      place->push_back(static_cast<uint16_t>((seed + word * 40503U) >> 8 & 0x3FFF));
    }
  }
}

void Scatter(int32_t side, const DeEncodeItem* items, int32_t count,
             const std::vector<uint16_t>& place) {
  const uint16_t* from = place.data();
  for (int32_t i = 0; i < count; ++i) {
    const size_t words = WordsALine(side, items[i].dtype);
    for (int32_t y = 0; y < side / kPixelsARow; ++y, from += words) {
      std::memcpy(static_cast<char*>(items[i].rows) + y * items[i].line_stride, from,
                  words * sizeof(*from));
    }
  }
}

template <typename Computed>
DeCode EncodeAhead(DeSlot* slot, int32_t side, const DeEncodeItem* items, int32_t count,
                   DeEncodeStats* stats, Computed computed) {
  std::vector<uint16_t>& place = slot->places[slot->next];
  slot->next ^= 1;
  Compute(side, items, count, &place);
  const std::vector<int32_t>& buckets = slot->backend->buckets;
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), count);
  *stats = {bucket == buckets.end() ? count : *bucket, 1, 1e-3 * count};
  computed();
  Scatter(side, items, count, place);
  return DE_OK;
}

DeCode Encode(DeSlot* slot, int32_t side, const DeEncodeItem* items, int32_t count,
              DeEncodeStats* stats, DeError*) {
  return EncodeAhead(slot, side, items, count, stats, [] {});
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
                                            DeError*) {
  return EncodeAhead(slot, side, items, count, stats, [=] { computed(context); });
}

EXPORT const char* deepencoder_cuda_build(void) { return "0.0.1 (fake)"; }
#endif
