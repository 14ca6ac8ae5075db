#include "server/engine/decode_pool.h"

#include <string>
#include <system_error>

#include "encoder/base/processors.h"
#include "server/engine/thread_name.h"

namespace deepencoder {

int DecodeThreadCount(int wanted) {
  if (wanted > 0) return wanted;
  return AvailableProcessors();
}

DecodePool::DecodePool(int threads, EngineObserver* observer, Work work)
    : observer_(observer), thread_count_(threads), work_(std::move(work)) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Run(i); });
  } catch (const std::system_error&) {
    Stop();  // those that did start
    throw;
  }
}

DecodePool::~DecodePool() { Stop(); }

bool DecodePool::Submit(std::shared_ptr<Request> request, absl::Time due) {
  {
    MutexLock lock(mutex_);
    if (stopped_) return false;
    waiting_.emplace(std::pair(due, submitted_++), std::move(request));
  }
  changed_.NotifyOne();
  return true;
}

bool DecodePool::HasWaiting() const {
  MutexLock lock(mutex_);
  return !waiting_.empty();
}

void DecodePool::Run(int index) {
  NameThisThread("decode-" + std::to_string(index));
  while (true) {
    std::shared_ptr<Request> request;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopped_) changed_.Wait(mutex_);
      if (stopped_) return;
      request = std::move(waiting_.extract(waiting_.begin()).mapped());
      observer_->OnDecodePool(++busy_, thread_count_);
    }
    work_(request);
    MutexLock lock(mutex_);
    observer_->OnDecodePool(--busy_, thread_count_);
  }
}

std::vector<std::shared_ptr<Request>> DecodePool::TakeWaiting() {
  std::vector<std::shared_ptr<Request>> taken;
  MutexLock lock(mutex_);
  for (auto& [place, request] : waiting_) taken.push_back(std::move(request));
  waiting_.clear();
  return taken;
}

std::vector<std::shared_ptr<Request>> DecodePool::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  std::vector<std::shared_ptr<Request>> left = TakeWaiting();
  changed_.NotifyAll();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  return left;
}

}  // namespace deepencoder
