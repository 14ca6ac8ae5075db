#include "server/engine/reply_thread.h"

#include <utility>

#include "server/engine/thread_name.h"

namespace deepencoder {

ReplyThread::ReplyThread() : thread_([this] { Run(); }) {}

ReplyThread::~ReplyThread() { Stop(); }

void ReplyThread::Post(std::function<void()> deliver) {
  {
    MutexLock lock(mutex_);
    posted_.push_back(std::move(deliver));
  }
  changed_.NotifyOne();
}

void ReplyThread::Run() {
  NameThisThread("reply");
  std::vector<std::function<void()>> batch;
  while (true) {
    {
      MutexLock lock(mutex_);
      while (posted_.empty() && !stopped_) changed_.Wait(mutex_);
      if (posted_.empty()) return;
      batch.swap(posted_);
    }
    for (std::function<void()>& deliver : batch) {
      deliver();
      deliver = nullptr;  // what it holds goes now, not with the last of the batch
    }
    batch.clear();
  }
}

void ReplyThread::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

}  // namespace deepencoder
