#include "server/engine/backend_set.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace deepencoder {

BackendSet::BackendSet(std::vector<DeviceSlots> devices, SpecialRows special, uint64_t generation,
                       const BatchPolicy& policy, const PoolContext& context)
    : special_(std::move(special)), generation_(generation) {
  for (DeviceSlots& device : devices) {
    pools_.push_back(std::make_unique<DevicePool>(std::move(device), policy, context));
  }
}

bool BackendSet::any_lost() const {
  return std::any_of(pools_.begin(), pools_.end(), [](const auto& pool) { return pool->lost(); });
}

bool BackendSet::all_lost() const {
  return std::all_of(pools_.begin(), pools_.end(), [](const auto& pool) { return pool->lost(); });
}

DevicePool* BackendSet::Assign(int64_t work) {
  // Under a lock: two images that choose at once must not both see the same device as idle.
  MutexLock lock(choice_);
  DevicePool* best = nullptr;
  size_t best_index = 0;
  for (size_t i = 0; i < pools_.size(); ++i) {
    const size_t index = (turn_ + i) % pools_.size();
    DevicePool* pool = pools_[index].get();
    if (pool->lost()) continue;
    if (best == nullptr || pool->Load() < best->Load()) {
      best = pool;
      best_index = index;
    }
  }
  if (best == nullptr) return nullptr;
  turn_ = best_index + 1;
  best->AddLoad(work);
  return best;
}

Outlook BackendSet::Foresee(const ViewCounts& views, absl::Time deadline) const {
  std::optional<Outlook> best;
  for (const auto& pool : pools_) {
    if (pool->lost()) continue;
    const Outlook outlook = pool->Foresee(views, deadline);
    if (!best || outlook.time < best->time) best = outlook;
  }
  return best.value_or(Outlook{});
}

void BackendSet::Stop() {
  for (const auto& pool : pools_) pool->Stop();
}

std::shared_ptr<Assignment> Assignment::Make(std::shared_ptr<BackendSet> set,
                                             const ViewPlan& plan) {
  int64_t pixels = 0;
  for (const ResizeJob& job : plan.jobs) pixels += int64_t{job.views()} * job.side * job.side;
  DevicePool* pool = set->Assign(pixels);
  if (pool == nullptr) return nullptr;
  return std::shared_ptr<Assignment>(new Assignment(std::move(set), pool, pixels));
}

std::shared_ptr<BackendSet> RetiredSets::Share(std::unique_ptr<BackendSet> set,
                                               std::shared_ptr<RetiredSets> retired) {
  return std::shared_ptr<BackendSet>(set.release(),
                                     [retired = std::move(retired)](BackendSet* last) {
                                       MutexLock lock(retired->mutex_);
                                       retired->sets_.emplace_back(last);
                                       retired->came_.NotifyAll();
                                     });
}

void RetiredSets::AwaitAndDestroy(uint64_t generation) {
  std::unique_ptr<BackendSet> set;  // outlives the lock: ending its threads takes time
  MutexLock lock(mutex_);
  while (true) {
    const auto found = std::find_if(sets_.begin(), sets_.end(), [&](const auto& candidate) {
      return candidate->generation() == generation;
    });
    if (found != sets_.end()) {
      set = std::move(*found);
      sets_.erase(found);
      break;
    }
    came_.Wait(mutex_);
  }
}

void RetiredSets::DestroyAll() {
  std::vector<std::unique_ptr<BackendSet>> sets;  // as above
  MutexLock lock(mutex_);
  sets.swap(sets_);
}

}  // namespace deepencoder
