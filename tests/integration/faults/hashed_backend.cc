#include "tests/integration/faults/hashed_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "encoder/image/views.h"
#include "encoder/model/config.h"

namespace deepencoder {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 29);
}

uint64_t Hash(const uint8_t* bytes, size_t count) {
  uint64_t hash = count;
  for (; count >= sizeof(uint64_t); bytes += sizeof(uint64_t), count -= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
    hash = Mix(hash, word);
  }
  return hash;  // the sides of views are multiples of 8
}

// Bytes of views, for metrics; outlives the backend with the views.
using ByteCount = std::atomic<int64_t>;

class HashedViews final : public ViewSet {
 public:
  HashedViews(std::vector<View> views, std::shared_ptr<ByteCount> count)
      : views_(std::move(views)), count_(std::move(count)) {
    for (const View& view : views_) bytes_ += view.rgb.size();
    *count_ += static_cast<int64_t>(bytes_);
  }
  ~HashedViews() override { *count_ -= static_cast<int64_t>(bytes_); }
  int size() const override { return static_cast<int>(views_.size()); }
  int side(int view) const override { return views_[view].side; }
  size_t bytes() const override { return bytes_; }
  uint64_t hash(int view) const { return Hash(views_[view].rgb.data(), views_[view].rgb.size()); }

 private:
  const std::vector<View> views_;
  size_t bytes_ = 0;
  const std::shared_ptr<ByteCount> count_;
};

class HashedSlot final : public EncoderSlot {
 public:
  explicit HashedSlot(std::vector<int> buckets) : buckets_(std::move(buckets)) {}

  absl::Status Encode(int side, std::span<const EncodeItem> items, EncodeStats* stats) override {
    if (items.empty() || static_cast<int>(items.size()) > buckets_.back()) {
      return absl::InvalidArgumentError("a batch of a size that is not served");
    }
    for (const EncodeItem& item : items) {
      if (item.views->side(item.view) != side) {
        return absl::InvalidArgumentError("views of different sides in one batch");
      }
      Write(item, OutputGridOf(side));
    }
    stats->bucket =
        *std::lower_bound(buckets_.begin(), buckets_.end(), static_cast<int>(items.size()));
    return absl::OkStatus();
  }

 private:
  static void Write(const EncodeItem& item, int lines) {
    const size_t line_bytes = kEmbeddingWidth * SizeOf(item.dtype) * lines;
    uint64_t word = static_cast<const HashedViews*>(item.views)->hash(item.view);
    for (int line = 0; line < lines; ++line) {
      std::byte* at = item.rows + line * item.line_stride;
      for (size_t done = 0; done < line_bytes; done += sizeof(word)) {
        word = Mix(word, done);
        // Without the upper bit of each exponent: finite in every type.
        const uint64_t finite = word & 0xBFFFBFFFBFFFBFFF;
        std::memcpy(at + done, &finite, sizeof(finite));
      }
    }
  }

  const std::vector<int> buckets_;
};

class HashedBackend final : public Backend {
 public:
  explicit HashedBackend(const BackendOptions& options) {
    info_.kind = "hashed";
    info_.device_name = "hash of pixels";
    info_.compute = options.compute;
    info_.sides = options.sides;
    info_.batch_buckets = options.batch_buckets;
  }

  const BackendInfo& info() const override { return info_; }
  absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(const RgbImage& image,
                                                           const ViewPlan& plan) override {
    return std::make_shared<const HashedViews>(RenderViews(image, plan), count_);
  }
  absl::StatusOr<std::unique_ptr<EncoderSlot>> CreateSlot() override {
    return std::make_unique<HashedSlot>(info_.batch_buckets);
  }
  std::vector<MemoryUse> Memory() const override {
    const auto now = static_cast<size_t>(count_->load());
    return {{"views", now, now}};
  }
  size_t FreeMemory() const override { return std::numeric_limits<size_t>::max(); }

 private:
  BackendInfo info_;
  const std::shared_ptr<ByteCount> count_ = std::make_shared<ByteCount>(0);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateHashedBackend(const Checkpoint& checkpoint,
                                                             const BackendOptions& options) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    (void)Hash(reinterpret_cast<const uint8_t*>(tensor.data), tensor.bytes);
  }
  return std::make_unique<HashedBackend>(options);
}

}  // namespace deepencoder
