#include "tests/server/engine/fakes.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "encoder/model/config.h"
#include "encoder/model/geometry.h"

namespace deepencoder {
namespace {

void RaiseTo(std::atomic<int64_t>* maximum, int64_t value) {
  int64_t seen = maximum->load();
  while (seen < value && !maximum->compare_exchange_weak(seen, value)) {
  }
}

// Takes one of `left`, if any is.
bool TakeOne(std::atomic<int>* left) {
  int seen = left->load();
  while (seen > 0) {
    if (left->compare_exchange_weak(seen, seen - 1)) return true;
  }
  return false;
}

class FakeSlot final : public EncoderSlot {
 public:
  FakeSlot(std::shared_ptr<FakeDevice> device, std::vector<int> buckets,
           std::weak_ptr<const void> backend)
      : device_(std::move(device)), buckets_(std::move(buckets)), backend_(std::move(backend)) {}
  ~FakeSlot() override {
    if (calls_ > 0) device_->destroyed_in_call = true;
    if (backend_.expired()) device_->slot_outlived_backend = true;
    ++device_->slots_destroyed;
  }

  absl::Status Encode(int side, std::span<const EncodeItem> items, EncodeStats* stats) override {
    return EncodeAhead(side, items, stats, [] {});
  }

  bool Overlaps() const override { return device_->overlaps; }

  absl::Status EncodeAhead(int side, std::span<const EncodeItem> items, EncodeStats* stats,
                           const std::function<void()>& computed) override {
    const int calls = ++calls_;
    int seen = device_->most_calls;
    while (seen < calls && !device_->most_calls.compare_exchange_weak(seen, calls)) {
    }
    const int number = Begin();
    const absl::Cleanup leave = [this, number] {
      --calls_;
      MutexLock lock(mutex_);
      under_way_.erase(number);
    };
    if (items.empty() || static_cast<int>(items.size()) > buckets_.back()) {
      return absl::InvalidArgumentError("batch of a wrong size");
    }
    std::vector<int> tags;
    for (const EncodeItem& item : items) {
      if (item.views->side(item.view) != side) return absl::InvalidArgumentError("mixed sides");
      tags.push_back(static_cast<const FakeViews*>(item.views)->tag());
    }
    device_->NoteEncode(tags);
    device_->encode_gate.Pass();
    if (std::find(tags.begin(), tags.end(), device_->held_tag) != tags.end()) device_->hold.Pass();
    if (TakeOne(&device_->encode_throws)) throw std::bad_alloc();
    if (TakeOne(&device_->encode_faults)) return absl::InternalError("the device fell over");
    computed();
    device_->NoteComputed();
    device_->rows_gate.Pass();
    if (std::find(tags.begin(), tags.end(), device_->rows_held_tag) != tags.end()) {
      device_->rows_hold.Pass();
    }
    if (TakeOne(&device_->rows_faults)) return absl::InternalError("the rows got lost");
    for (size_t i = 0; i < items.size(); ++i) Write(items[i], tags[i]);
    stats->bucket =
        *std::lower_bound(buckets_.begin(), buckets_.end(), static_cast<int>(items.size()));
    return absl::OkStatus();
  }

 private:
  int Begin() {
    MutexLock lock(mutex_);
    if (!under_way_.empty() && *under_way_.begin() != begun_) device_->third_call = true;
    under_way_.insert(++begun_);
    return begun_;
  }

  void Write(const EncodeItem& item, int tag) const {
    const int lines = OutputGridOf(item.views->side(item.view));
    const size_t row_bytes = kEmbeddingWidth * SizeOf(item.dtype);
    for (int line = 0; line < lines; ++line) {
      for (int column = 0; column < lines; ++column) {
        std::byte* row = item.rows + line * item.line_stride + column * row_bytes;
        const bool nan = device_->all_nan || tag == device_->nan_tag;
        const uint16_t word =
            nan ? uint16_t{0xFFFF} : FakeWord(device_->salt, tag, item.view, line, column);
        std::memset(row, 0, SizeOf(item.dtype));
        std::memset(row + row_bytes - SizeOf(item.dtype), 0, SizeOf(item.dtype));
        std::memcpy(row, &word, 2);
        std::memcpy(row + row_bytes - 2, &word, 2);
      }
    }
  }

  const std::shared_ptr<FakeDevice> device_;
  const std::vector<int> buckets_;
  const std::weak_ptr<const void> backend_;
  std::atomic<int> calls_{0};
  Mutex mutex_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int> under_way_ ABSL_GUARDED_BY(mutex_);
};

class FakeBackend final : public Backend {
 public:
  FakeBackend(std::shared_ptr<FakeDevice> device, int ordinal, std::vector<int> buckets)
      : device_(std::move(device)) {
    info_.kind = "fake";
    info_.device = ordinal;
    info_.batch_buckets = std::move(buckets);
  }
  ~FakeBackend() override { device_->backend_destroyed = true; }

  const BackendInfo& info() const override { return info_; }

  absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(const RgbImage& image,
                                                           const ViewPlan& plan) override {
    const int tag = image.data()[0] + 256 * image.data()[1];
    device_->NoteViews(tag);
    device_->views_gate.Pass();
    if (TakeOne(&device_->view_faults)) return absl::InternalError("the device cannot copy");
    std::vector<int> sides;
    for (const ResizeJob& job : plan.jobs) sides.insert(sides.end(), job.views(), job.side);
    return std::make_shared<const FakeViews>(std::move(sides), tag);
  }

  absl::StatusOr<std::unique_ptr<EncoderSlot>> CreateSlot() override {
    device_->create_gate.Pass();
    if (device_->create_fails) return absl::InternalError("the device is gone");
    ++device_->slots_made;
    return std::make_unique<FakeSlot>(device_, info_.batch_buckets, alive_);
  }

  std::vector<MemoryUse> Memory() const override { return {}; }
  size_t FreeMemory() const override { return std::numeric_limits<size_t>::max(); }

 private:
  const std::shared_ptr<FakeDevice> device_;
  const std::shared_ptr<const void> alive_ = std::make_shared<char>();
  BackendInfo info_;
};

}  // namespace

// ---------------------------------------------------------------- observer

void CountingObserver::OnStage(Stage stage, Mode, double) {
  ++stages[static_cast<int>(stage)];
  if (on_stage) on_stage(stage);
}
void CountingObserver::OnBatch(int, int, int size, int, GraphUse, double) {
  ++batches;
  views += size;
}
void CountingObserver::OnQueue(int64_t items, int64_t bytes) {
  queue_items = items;
  queue_bytes = bytes;
  lowest_queue = std::min({lowest_queue.load(), items, bytes});
  if (on_queue) on_queue(items);
}
void CountingObserver::OnInFlight(int64_t images_now, int64_t bytes) {
  in_flight_images = images_now;
  in_flight_bytes = bytes;
  RaiseTo(&max_in_flight_images, images_now);
  RaiseTo(&max_in_flight_bytes, bytes);
}
void CountingObserver::OnReject(RejectReason reason) { ++rejects[static_cast<int>(reason)]; }
void CountingObserver::OnDrop(DropReason reason, Stage before) {
  ++drops[static_cast<int>(reason)];
  ++drops_before[static_cast<int>(before)];
}
void CountingObserver::OnImage(Mode, int rows_of_image) {
  ++images;
  rows += rows_of_image;
}
void CountingObserver::OnCache(bool hit) { ++(hit ? hits : misses); }
void CountingObserver::OnCacheSize(int64_t bytes, int64_t entries) {
  cache_bytes = bytes;
  cache_entries = entries;
}
void CountingObserver::OnDecodePool(int busy, int) { busy_decoders = busy; }

int64_t CountingObserver::AllRejects() const {
  int64_t sum = 0;
  for (const auto& count : rejects) sum += count;
  return sum;
}
int64_t CountingObserver::AllDrops() const { return drops[0] + drops[1]; }

// ---------------------------------------------------------------- gate, device

void Gate::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}
void Gate::Open() {
  MutexLock lock(mutex_);
  closed_ = false;
  changed_.NotifyAll();
}
void Gate::Admit(int count) {
  MutexLock lock(mutex_);
  admitted_ += count;
  changed_.NotifyAll();
}
void Gate::Pass() {
  MutexLock lock(mutex_);
  while (closed_ && admitted_ == 0) changed_.Wait(mutex_);
  if (closed_) --admitted_;
}

void FakeDevice::NoteViews(int tag) {
  MutexLock lock(mutex_);
  ++views_calls_;
  viewed_.insert(tag);
  changed_.NotifyAll();
}
void FakeDevice::NoteEncode(const std::vector<int>& tags) {
  MutexLock lock(mutex_);
  ++encode_calls_;
  encoded_.insert(tags.begin(), tags.end());
  changed_.NotifyAll();
}
void FakeDevice::AwaitViews(int calls) {
  MutexLock lock(mutex_);
  while (views_calls_ < calls) changed_.Wait(mutex_);
}
void FakeDevice::AwaitEncodes(int calls) {
  MutexLock lock(mutex_);
  while (encode_calls_ < calls) changed_.Wait(mutex_);
}
void FakeDevice::NoteComputed() {
  MutexLock lock(mutex_);
  ++computed_;
  changed_.NotifyAll();
}
void FakeDevice::AwaitComputed(int calls) {
  MutexLock lock(mutex_);
  while (computed_ < calls) changed_.Wait(mutex_);
}
int FakeDevice::encodes() const {
  MutexLock lock(mutex_);
  return encode_calls_;
}
bool FakeDevice::WasViewed(int tag) const {
  MutexLock lock(mutex_);
  return viewed_.contains(tag);
}
bool FakeDevice::WasEncoded(int tag) const {
  MutexLock lock(mutex_);
  return encoded_.contains(tag);
}

size_t FakeViews::bytes() const {
  size_t bytes = 0;
  for (const int side : sides_) bytes += size_t{3} * side * side;
  return bytes;
}

std::unique_ptr<Backend> MakeFakeBackend(std::shared_ptr<FakeDevice> device, int ordinal,
                                         std::vector<int> buckets) {
  return std::make_unique<FakeBackend>(std::move(device), ordinal, std::move(buckets));
}

DeviceSlots MakeFakeSlots(const std::shared_ptr<FakeDevice>& device, int slots, int ordinal,
                          std::vector<int> buckets) {
  DeviceSlots made;
  made.backend = MakeFakeBackend(device, ordinal, std::move(buckets));
  for (int i = 0; i < slots; ++i) made.slots.push_back(*made.backend->CreateSlot());
  return made;
}

// ---------------------------------------------------------------- rows

SpecialRows FakeSpecialRows() {
  return {.image_newline = std::vector<float>(kEmbeddingWidth, 1.0F),
          .view_separator = std::vector<float>(kEmbeddingWidth, 2.0F)};
}

uint16_t FakeWord(uint8_t salt, int tag, int view, int line, int column) {
  const int mixed = salt * 40503 + tag * 7919 + view * 977 + line * 83 + column + 1;
  return static_cast<uint16_t>(mixed & 0xBFFF);  // finite as the upper half of any type
}

std::string CheckRows(const EncodeResult& result, uint8_t salt, int tag) {
  const SequenceLayout layout = LayoutOf(result.mode, result.tiles);
  const size_t row_bytes = kEmbeddingWidth * SizeOf(result.dtype);
  if (result.rows != layout.rows) return absl::StrCat(result.rows, " rows");
  if (result.bytes != layout.rows * row_bytes) return absl::StrCat(result.bytes, " bytes");
  // Both ends of a row: a shift by any number of elements shows.
  const auto word = [&](int row, size_t at) {
    uint16_t value;
    std::memcpy(&value, result.data.get() + row * row_bytes + at, 2);
    return value;
  };
  for (size_t view = 0; view < layout.views.size(); ++view) {
    const ViewRows& place = layout.views[view];
    for (int line = 0; line < place.lines; ++line) {
      for (int column = 0; column < place.lines; ++column) {
        const int row = place.first_row + line * place.line_stride + column;
        const uint16_t want = FakeWord(salt, tag, static_cast<int>(view), line, column);
        if (word(row, 0) != want || word(row, row_bytes - 2) != want) {
          return absl::StrCat("row ", row, " of view ", view);
        }
      }
    }
  }
  const auto is_marker = [&](int row, float value) {
    const std::byte* bytes = result.data.get() + row * row_bytes;
    float first, last;
    ConvertToFloat(result.dtype, bytes, &first, 1);
    ConvertToFloat(result.dtype, bytes + row_bytes - SizeOf(result.dtype), &last, 1);
    return first == value && last == value;
  };
  for (const int row : layout.newline_rows) {
    if (!is_marker(row, 1.0F)) return absl::StrCat("newline row ", row);
  }
  if (!is_marker(layout.separator_row, 2.0F)) return "separator row";
  return "";
}

EncodeJob RawJob(int tag, Mode mode, int width, int height) {
  auto pixels = std::make_shared<std::vector<std::byte>>(size_t{3} * width * height);
  (*pixels)[0] = static_cast<std::byte>(tag % 256);
  (*pixels)[1] = static_cast<std::byte>(tag / 256);
  EncodeJob job;
  job.request_id = absl::StrCat("job-", tag);
  job.image = RawPixels{.width = width, .height = height, .rgb = {pixels, *pixels}};
  job.mode = mode;
  return job;
}

EncodeDone Answers::For(int number) {
  return [this, number](absl::StatusOr<EncodeResult> answer) {
    MutexLock lock(mutex_);
    answers_[number].push_back(std::move(answer));
    ++count_;
    changed_.NotifyAll();
  };
}
void Answers::Await(int count) {
  MutexLock lock(mutex_);
  while (count_ < count) changed_.Wait(mutex_);
}
int Answers::count() const {
  MutexLock lock(mutex_);
  return count_;
}
absl::StatusOr<EncodeResult> Answers::Get(int number) const {
  MutexLock lock(mutex_);
  return answers_.at(number).front();
}
int Answers::times(int number) const {
  MutexLock lock(mutex_);
  const auto found = answers_.find(number);
  return found == answers_.end() ? 0 : static_cast<int>(found->second.size());
}

std::shared_ptr<ImageTask> MakeTask(std::vector<int> sides, absl::Time deadline,
                                    std::shared_ptr<CancelFlag> cancel) {
  EncodeJob job;
  job.deadline = deadline;
  job.cancel = std::move(cancel);
  auto request = std::make_shared<Request>(
      std::move(job), [](const absl::StatusOr<EncodeResult>&) {}, absl::UnixEpoch());
  return std::make_shared<ImageTask>(std::move(request), nullptr,
                                     std::make_shared<const FakeViews>(std::move(sides), 0),
                                     ViewPlan{}, SequenceLayout{}, TaskRows{}, StageSeconds{});
}

}  // namespace deepencoder
