// The devices that serve one set of weights, and the choice among them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "encoder/image/view_plan.h"
#include "server/engine/device_pool.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// The two learned rows that no view produces, kEmbeddingWidth floats each.
struct SpecialRows {
  std::vector<float> image_newline;
  std::vector<float> view_separator;
};

// Thread-safe.
class BackendSet {
 public:
  BackendSet(std::vector<DeviceSlots> devices, SpecialRows special, uint64_t generation,
             const BatchPolicy& policy, const PoolContext& context);

  const SpecialRows& special() const { return special_; }
  uint64_t generation() const { return generation_; }
  bool any_lost() const;
  bool all_lost() const;

  // The device with the least work a slot, in turn among equals; null if all are lost. `work` counts as
  // its load until Unassign.
  DevicePool* Assign(int64_t work);

  // What an image with such views can expect on the best of the devices; nothing to wait for if all are lost.
  Outlook Foresee(const ViewCounts& views, absl::Time deadline) const;

  void Stop();

 private:
  const SpecialRows special_;
  const uint64_t generation_;
  std::vector<std::unique_ptr<DevicePool>> pools_;
  Mutex choice_;
  size_t turn_ ABSL_GUARDED_BY(choice_) = 0;
};

// An image's place on a device: keeps the set alive, and counts as load, until it goes.
class Assignment {
 public:
  // Null if every device of the set is lost.
  static std::shared_ptr<Assignment> Make(std::shared_ptr<BackendSet> set, const ViewPlan& plan);
  ~Assignment() { pool_->AddLoad(-work_); }
  Assignment(const Assignment&) = delete;
  Assignment& operator=(const Assignment&) = delete;

  DevicePool& pool() const { return *pool_; }

 private:
  Assignment(std::shared_ptr<BackendSet> set, DevicePool* pool, int64_t work)
      : set_(std::move(set)), pool_(pool), work_(work) {}

  const std::shared_ptr<BackendSet> set_;
  DevicePool* const pool_;
  const int64_t work_;
};

// Where sets go when their last user leaves. That may be one of the set's own slot threads, which
// cannot end itself: whoever calls Destroy does it.
class RetiredSets {
 public:
  // A set that comes here when its last shared_ptr goes.
  static std::shared_ptr<BackendSet> Share(std::unique_ptr<BackendSet> set,
                                           std::shared_ptr<RetiredSets> retired);

  // Waits until the set of `generation` has come, and destroys it.
  void AwaitAndDestroy(uint64_t generation);
  // Destroys what has come.
  void DestroyAll();

 private:
  Mutex mutex_;
  CondVar came_;
  std::vector<std::unique_ptr<BackendSet>> sets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace deepencoder
