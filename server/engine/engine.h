// The serving engine: decode pool, views, batcher and slots behind one asynchronous call. Knows nothing
// of gRPC: rpc/ translates.
//
//   Encode -> admission -> decode pool (file -> pixels -> views) -> batcher -> slots -> assemble -> done
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "encoder/backend/backend.h"
#include "encoder/base/dtype.h"
#include "encoder/image/decode.h"
#include "encoder/model/geometry.h"
#include "server/engine/timeline.h"

namespace deepencoder {

// Told once that nobody waits for a job any more; the engine looks at it before each costly step.
// Thread-safe.
class CancelFlag {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

// Bytes somebody else owns; `owner` keeps them alive.
struct SharedBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

struct EncodedFile {
  SharedBytes file;
};
struct RawPixels {
  int width, height;
  SharedBytes rgb;  // width * height * 3
};

// Memory of the client's for a job's rows. Slots write it from when the job's views are queued until before its
// `done` is called, and never after.
class ReplyMemory {
 public:
  virtual ~ReplyMemory() = default;
  virtual std::span<std::byte> bytes() const = 0;  // the client may change them at any time
  // The one exception: a call into a device is stuck, the job fails now, and the call may yet write. Called before
  // `done`; the client must not be led to believe that the memory is its own again.
  virtual void Abandon() = 0;
};

struct EncodeJob {
  std::string request_id;  // for logs
  std::string client;      // whose limits it counts against
  std::variant<EncodedFile, RawPixels> image;
  Mode mode = Mode::kGundam;
  int max_tiles = kDefaultMaxTiles;
  DType dtype = DType::kBf16;
  AlphaPolicy alpha = AlphaPolicy::kDrop;
  Gray16Policy gray16 = Gray16Policy::kHighByte;
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<CancelFlag> cancel;  // may be null
  std::shared_ptr<Timeline> timeline;  // filled on the job's way; null: nobody wants to know
  // Where the rows are to lie; null: in memory of the engine's, where they also are if it keeps results for
  // other jobs.
  std::shared_ptr<ReplyMemory> reply_memory;
};

// Bytes of the job's image as the client sent it.
int64_t StoredBytes(const EncodeJob& job);

struct StageSeconds {
  double decode = 0, views = 0, queue = 0, compute = 0, assemble = 0, total = 0;
};

struct EncodeResult {
  std::shared_ptr<const std::byte[]>
      data;  // rows * 1280 elements of dtype; also the cache's: read only
  size_t bytes = 0;
  int rows = 0;
  DType dtype = DType::kBf16;
  Mode mode = Mode::kGundam;
  int image_width = 0, image_height = 0;  // after orientation
  TileGrid tiles;
  StageSeconds seconds;
  bool cache_hit = false;
  bool in_reply_memory = false;  // data lies in the job's
};

using EncodeDone = std::function<void(absl::StatusOr<EncodeResult>)>;

// Why a job ended without being encoded; the label of deepencoder_rejected_total and _dropped_total.
enum class RejectReason : uint8_t {
  kRequests,
  kImages,
  kBytes,
  kViews,
  kDraining,
  kUnhealthy,
  // Of one client (ClientLimits), not of the server.
  kClientRate,
  kClientBytes,
  kClientImages,
};
enum class DropReason : uint8_t { kDeadline, kCancelled };
enum class Stage : uint8_t { kDecode, kViews, kQueue, kCompute, kAssemble };
std::string_view Name(RejectReason reason);
std::string_view Name(DropReason reason);
std::string_view Name(Stage stage);

// Hears what the engine does; metrics implement it. Every method is called from engine threads, must be
// thread-safe, quick, and must not call the engine.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void OnStage(Stage stage, Mode mode, double seconds) = 0;
  // A batch ran on a device: `size` views in a bucket of `bucket` (>= size; the rest was padding).
  virtual void OnBatch(int device, int side, int size, int bucket, GraphUse graph,
                       double compute_seconds) = 0;
  // New totals: views that wait in the queues, and their bytes.
  virtual void OnQueue(int64_t items, int64_t bytes) = 0;
  // New totals: images that are admitted and not answered, and the bytes they are charged.
  virtual void OnInFlight(int64_t images, int64_t bytes) = 0;
  virtual void OnReject(RejectReason reason) = 0;
  virtual void OnDrop(DropReason reason,
                      Stage before) = 0;          // `before`: the step that was not begun
  virtual void OnImage(Mode mode, int rows) = 0;  // answered, encoded or from the cache
  // `hit`: answered by a result that was there or by an equal job's, in flight at the time.
  virtual void OnCache(bool hit) = 0;
  // New totals: the results that the cache holds, and their bytes.
  virtual void OnCacheSize(int64_t bytes, int64_t entries) = 0;
  virtual void OnDecodePool(int busy, int threads) = 0;
};

// Implementations: server/engine/serving_engine.h. Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  // `done` is called exactly once, from an engine thread or before Encode returns.
  // Statuses: see proto/deepencoder/v1/vision_encoder.proto.
  virtual void Encode(EncodeJob job, EncodeDone done) = 0;
  // False once a device has lost its last slot and could not rebuild it.
  virtual bool healthy() const = 0;
  // Refuses new jobs with UNAVAILABLE; returns when none is in flight (true) or at `deadline` (false).
  virtual bool Drain(absl::Time deadline) = 0;
};

}  // namespace deepencoder
