// Stand-ins for what the engine is given: a clock, an observer, a backend whose slots wait and fail on
// command. No test of the engine sleeps: a gate holds a slot until the test opens it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "encoder/backend/backend.h"
#include "server/engine/clock.h"
#include "server/engine/device_pool.h"
#include "server/engine/engine.h"
#include "server/engine/image_task.h"
#include "server/engine/mutex.h"
#include "server/engine/request.h"
#include "server/engine/serving_engine.h"

namespace deepencoder {

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixNanos(nanos_.load()); }
  void Advance(absl::Duration by) { nanos_.fetch_add(absl::ToInt64Nanoseconds(by)); }

 private:
  std::atomic<int64_t> nanos_{absl::ToUnixNanos(absl::UnixEpoch() + absl::Hours(24 * 365))};
};

// Counts what it hears.
class CountingObserver final : public EngineObserver {
 public:
  // Called in the middle of things; set before the engine starts. May be empty.
  std::function<void(Stage)> on_stage;
  std::function<void(int64_t items)> on_queue;

  void OnStage(Stage stage, Mode mode, double seconds) override;
  void OnBatch(int device, int side, int size, int bucket, GraphUse graph,
               double compute_seconds) override;
  void OnQueue(int64_t items, int64_t bytes) override;
  void OnInFlight(int64_t images, int64_t bytes) override;
  void OnReject(RejectReason reason) override;
  void OnDrop(DropReason reason, Stage before) override;
  void OnImage(Mode mode, int rows) override;
  void OnCache(bool hit) override;
  void OnCacheSize(int64_t bytes, int64_t entries) override;
  void OnDecodePool(int busy, int threads) override;

  std::array<std::atomic<int64_t>, 9> rejects{};
  std::array<std::atomic<int64_t>, 2> drops{};
  std::array<std::atomic<int64_t>, 5> drops_before{}, stages{};
  std::atomic<int64_t> images{0}, rows{0}, batches{0}, views{0}, hits{0}, misses{0};
  std::atomic<int64_t> queue_items{0}, queue_bytes{0}, in_flight_images{0}, in_flight_bytes{0};
  std::atomic<int64_t> max_in_flight_images{0}, max_in_flight_bytes{0}, lowest_queue{0};
  std::atomic<int64_t> cache_bytes{0}, cache_entries{0}, busy_decoders{0};

  int64_t AllRejects() const;
  int64_t AllDrops() const;
};

// Closed, it holds whoever passes.
class Gate {
 public:
  void Close();
  void Open();
  // Lets the next `count` pass, held already or not.
  void Admit(int count);
  void Pass();

 private:
  Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int admitted_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What a FakeBackend does, and has done; outlives it. The test holds it, the engine the backend.
class FakeDevice {
 public:
  Gate encode_gate, views_gate, create_gate;
  // A batch with an image of held_tag passes hold; one of nan_tag gets values that are not numbers.
  Gate hold;
  std::atomic<int> held_tag{-1}, nan_tag{-1};
  std::atomic<bool> all_nan{false};   // whatever is encoded does
  std::atomic<int> encode_throws{0};  // so many of the next Encode calls throw std::bad_alloc
  std::atomic<int> encode_faults{0};  // so many of the next Encode calls fail
  std::atomic<int> view_faults{0};    // and so many of MakeViews
  std::atomic<bool> create_fails{false};
  // Slots of two threads: calls overlap, pass rows_gate once they have computed, and so many of the next
  // ones fail then. Set `overlaps` before the slots are made.
  std::atomic<bool> overlaps{false};
  Gate rows_gate;
  std::atomic<int> rows_faults{0};
  // After rows_gate, a batch with an image of rows_held_tag passes rows_hold.
  std::atomic<int> rows_held_tag{-1};
  Gate rows_hold;
  std::atomic<bool> third_call{false};         // began beside one that was not the last begun
  std::atomic<int> most_calls{0};              // that were in a slot at a time
  std::atomic<bool> destroyed_in_call{false};  // a slot was
  std::atomic<bool> slot_outlived_backend{false};
  std::atomic<int> slots_made{0}, slots_destroyed{0};
  std::atomic<bool> backend_destroyed{false};
  uint8_t salt = 0;  // part of every row: tells one device's weights from another's

  // An image's tag is its first pixel's red and green bytes.
  void NoteViews(int tag);
  void NoteEncode(const std::vector<int>& tags);
  // Waits until MakeViews, or Encode, has been called so often (before any gate).
  void AwaitViews(int calls);
  void AwaitEncodes(int calls);
  int encodes() const;
  // The same of Encode calls that have computed, and pass rows_gate.
  void NoteComputed();
  void AwaitComputed(int calls);
  bool WasViewed(int tag) const;
  bool WasEncoded(int tag) const;

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  int views_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int encode_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int computed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int> viewed_ ABSL_GUARDED_BY(mutex_), encoded_ ABSL_GUARDED_BY(mutex_);
};

class FakeViews final : public ViewSet {
 public:
  FakeViews(std::vector<int> sides, int tag) : sides_(std::move(sides)), tag_(tag) {}
  int size() const override { return static_cast<int>(sides_.size()); }
  int side(int view) const override { return sides_[view]; }
  size_t bytes() const override;
  int tag() const { return tag_; }

 private:
  const std::vector<int> sides_;
  const int tag_;
};

std::unique_ptr<Backend> MakeFakeBackend(std::shared_ptr<FakeDevice> device, int ordinal,
                                         std::vector<int> buckets);
DeviceSlots MakeFakeSlots(const std::shared_ptr<FakeDevice>& device, int slots, int ordinal = 0,
                          std::vector<int> buckets = {1, 2, 4, 8});

// Marker rows of all 1 and all 2.
SpecialRows FakeSpecialRows();

// The 16-bit word that a fake slot writes to both ends of row `column` of line `line` of a view.
uint16_t FakeWord(uint8_t salt, int tag, int view, int line, int column);
// "" if `result` is what a fake device with `salt` makes of the image, else what is wrong.
std::string CheckRows(const EncodeResult& result, uint8_t salt, int tag);

// A job of a raw picture of this tag; tiny mode unless said otherwise.
EncodeJob RawJob(int tag, Mode mode = Mode::kTiny, int width = 2, int height = 2);

// Collects answers by the job's number; tells how often each came.
class Answers {
 public:
  EncodeDone For(int number);
  void Await(int count);  // of answers in all
  int count() const;
  // Of `number`, which must have been answered.
  absl::StatusOr<EncodeResult> Get(int number) const;
  int times(int number) const;

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<int, std::vector<absl::StatusOr<EncodeResult>>> answers_ ABSL_GUARDED_BY(mutex_);
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A task of views of these sides for the batch queue alone; it has no rows.
std::shared_ptr<ImageTask> MakeTask(std::vector<int> sides,
                                    absl::Time deadline = absl::InfiniteFuture(),
                                    std::shared_ptr<CancelFlag> cancel = nullptr);

}  // namespace deepencoder
