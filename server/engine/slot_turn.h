// Whose turn it is of the threads that share a slot.
//
// Rows are brought to where they go by the thread that encoded them, which takes milliseconds for a large
// batch. So that the device does not wait for it, a slot whose calls may overlap has two threads: who has
// the turn takes the next batch, and passes the turn on when the device is done with it.
#pragma once

#include <cstdint>
#include <set>

#include "absl/base/thread_annotations.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// Thread-safe.
class SlotTurn {
 public:
  void Take() {  // waits for it
    MutexLock lock(mutex_);
    while (taken_ || wanted_ > 0) changed_.Wait(mutex_);
    taken_ = true;
  }
  // Who had the turn and met a fault takes it before anybody's next batch. Between the two, Wanted says so.
  void Want() {
    MutexLock lock(mutex_);
    ++wanted_;
  }
  void TakeWanted() {
    MutexLock lock(mutex_);
    while (taken_) changed_.Wait(mutex_);
    taken_ = true;
    --wanted_;
  }
  bool Wanted() const {
    MutexLock lock(mutex_);
    return wanted_ > 0;
  }
  void Pass() {
    MutexLock lock(mutex_);
    taken_ = false;
    changed_.NotifyAll();
  }

  // Before a call into the slot, by who has the turn; its number is for Leave. Waits until of the calls
  // under way all but the last begun have returned: a slot brings rows away from one of two places in turn
  // (EncoderSlot::EncodeAhead), and the thread of a small batch may be back before that of a large one.
  int64_t Enter() {
    MutexLock lock(mutex_);
    while (!under_way_.empty() && *under_way_.begin() != begun_) changed_.Wait(mutex_);
    under_way_.insert(++begun_);
    return begun_;
  }
  void Leave(int64_t call) {
    MutexLock lock(mutex_);
    under_way_.erase(call);
    changed_.NotifyAll();
  }
  // Who has the turn, and is in no call: until no call is under way.
  void AwaitNoCall() {
    MutexLock lock(mutex_);
    while (!under_way_.empty()) changed_.Wait(mutex_);
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
  int wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;  // calls, numbered from 1
  std::set<int64_t> under_way_ ABSL_GUARDED_BY(mutex_);
};

// The turn, from its making to Pass or its end. Used by one thread.
class HeldTurn {
 public:
  explicit HeldTurn(SlotTurn* turn) : turn_(turn) { turn_->Take(); }
  ~HeldTurn() { Pass(); }
  HeldTurn(const HeldTurn&) = delete;
  HeldTurn& operator=(const HeldTurn&) = delete;

  void Pass() {
    if (held_) turn_->Pass();
    held_ = false;
  }
  bool held() const { return held_; }
  // For who does not hold it, in this order.
  void Want() { turn_->Want(); }
  void TakeBack() {
    turn_->TakeWanted();
    held_ = true;
  }

 private:
  SlotTurn* const turn_;
  bool held_ = true;
};

}  // namespace deepencoder
