// The boundary between serving and computing. Above it nothing knows CUDA or oneDNN, below it
// nothing knows requests.
//
//   image -> MakeViews -> ViewSet (memory of the backend) -> EncoderSlot::Encode -> rows in host
//   memory
//
// A Backend is one device with one model. It owns the weights; slots share them. A slot is a stream
// with its arena and graphs (CUDA) or a group of threads (CPU): the unit that runs one batch at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "encoder/base/dtype.h"
#include "encoder/image/image.h"
#include "encoder/image/view_plan.h"
#include "encoder/weights/checkpoint.h"

namespace deepencoder {

// The views of one image in a backend's memory, in the order of ViewPlan. Immutable; destroyed from
// any thread, not before the Encode calls that read it have returned.
class ViewSet {
 public:
  virtual ~ViewSet() = default;
  virtual int size() const = 0;
  virtual int side(int view) const = 0;  // pixels
  virtual size_t bytes() const = 0;      // of backend memory held
};

// One view to encode and where its rows go. Line y (of side/64 lines, side/64 rows each, 1280
// elements a row) is written to rows + y*line_stride as consecutive rows of `dtype`.
struct EncodeItem {
  const ViewSet* views;
  int view;
  DType dtype;
  std::byte* rows;
  size_t line_stride;  // bytes
};

// Whether a captured graph ran a batch; kNone where the backend has no graphs at all.
enum class GraphUse : uint8_t { kNone, kMiss, kHit };

struct EncodeStats {
  int bucket = 0;  // batch size that ran, pad rows included
  GraphUse graph = GraphUse::kNone;
  double compute_seconds = 0;  // on the device, copies excluded
};

class EncoderSlot {
 public:
  virtual ~EncoderSlot() = default;
  // Encodes views that all have `side`; 1 <= items.size() <= max_batch. Blocks until the rows are
  // written. Not thread-safe: one call at a time a slot. The rows of an item do not depend on its
  // company. Errors: INTERNAL (a device fault: the slot must be destroyed and made anew),
  // RESOURCE_EXHAUSTED (no memory; the slot, too), INVALID_ARGUMENT.
  virtual absl::Status Encode(int side, std::span<const EncodeItem> items, EncodeStats* stats) = 0;

  // As Encode, and calls `computed` on this thread, once, when the device is done and what is left is to
  // bring the rows to where they go; not if it fails before. From then on, if the slot Overlaps, one more
  // call may begin beside this one; a third not before this one has returned.
  virtual absl::Status EncodeAhead(int side, std::span<const EncodeItem> items, EncodeStats* stats,
                                   const std::function<void()>& computed) {
    absl::Status status = Encode(side, items, stats);
    if (status.ok()) computed();
    return status;
  }
  virtual bool Overlaps() const { return false; }
};

struct BackendOptions {
  int device = 0;                                   // ordinal; CPU: 0
  DType compute = DType::kBf16;                     // CPU: kBf16 or kFp32; CUDA: kBf16 or kFp16
  std::vector<int> sides = {512, 640, 1024, 1280};  // view sides that will be used
  std::vector<int> batch_buckets = {1, 2, 4, 8, 16, 32};  // ascending; the last is max_batch
  bool graphs = true;  // CUDA: capture one for every (side, bucket)
  int threads = 0;     // CPU: of a slot; 0: all cores
};

struct BackendInfo {
  std::string kind;         // "cpu", "cuda"
  std::string device_name;  // "NVIDIA H200", "Intel(R) Xeon(R) ..., amx"
  int device = 0;
  std::string pci_bus_id;  // "0000:3b:00.0", by which the driver's tools know it; empty: unknown
  std::string library;     // what its library was built from; empty: unknown, or this program
  DType compute = DType::kBf16;
  std::vector<int> sides;
  std::vector<int> batch_buckets;
};

struct MemoryUse {
  std::string kind;              // as DeMemoryUse::kind in cuda_abi.h
  size_t current = 0, peak = 0;  // bytes
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;

  // Thread-safe. Errors: RESOURCE_EXHAUSTED (device memory), INTERNAL.
  virtual absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(const RgbImage& image,
                                                                   const ViewPlan& plan) = 0;
  // With graphs on, captures them all before it returns (seconds). Thread-safe.
  // Errors: RESOURCE_EXHAUSTED (does not fit: try smaller buckets), INTERNAL.
  virtual absl::StatusOr<std::unique_ptr<EncoderSlot>> CreateSlot() = 0;

  virtual std::vector<MemoryUse> Memory() const = 0;
  // Bytes of this memory that something else could take now; SIZE_MAX if unknown. Of the CPU: what the
  // machine, the container's and the process' limits leave.
  virtual size_t FreeMemory() const = 0;
};

// AMX, AVX-512 or AVX2 is chosen by what the CPU has. `checkpoint` is read during the call only.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const Checkpoint& checkpoint,
                                                          const BackendOptions& options);
// kBf16 where the CPU has AMX tiles for it, else kFp32.
DType BestCpuType();

// Loads the CUDA backend's library (libdeepencoder_cuda.so, looked for beside the program, then by
// the loader). Errors: UNAVAILABLE (no library, no driver, no such device: the text says which),
// others as from loading.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const Checkpoint& checkpoint,
                                                           const BackendOptions& options);
// Devices that CreateCudaBackend could use; UNAVAILABLE with the reason if none.
absl::StatusOr<int> CudaDeviceCount();

}  // namespace deepencoder
