#include "server/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>

#include "server/engine/clock.h"

namespace deepencoder {
namespace {

constexpr int kSignalExit = 128;  // exit status of a process that a signal ended, as shells count

sigset_t Watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

Signals::Signals(const Logger* logger) : logger_(logger) {
  const sigset_t watched = Watched();
  pthread_sigmask(SIG_BLOCK, &watched, nullptr);
  // A client that hangs up must not end the server.
  std::signal(SIGPIPE, SIG_IGN);
  // Waits for signals until the process ends; so must this object then.
  std::thread([this] { Run(); }).detach();
}

void Signals::HandOver() {
  const MutexLock lock(mutex_);
  handed_over_ = true;
}

Signals::Event Signals::WaitFor(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  const MutexLock lock(mutex_);
  while (!stop_) {
    if (std::exchange(reload_, false)) return Event::kReload;
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return Event::kNone;
    changed_.WaitFor(mutex_, left);
  }
  return Event::kStop;
}

void Signals::Run() {
  const sigset_t watched = Watched();
  while (true) {
    int number = 0;
    if (sigwait(&watched, &number) != 0) continue;
    if (number == SIGHUP) {
      const MutexLock lock(mutex_);
      reload_ = true;
      changed_.NotifyAll();
      continue;
    }
    bool again;
    bool handled;
    {
      const MutexLock lock(mutex_);
      again = stop_;
      handled = handed_over_;
      stop_ = true;
      changed_.NotifyAll();
    }
    if (again) {
      logger_->Warning("second signal: exiting at once", {{"signal", number}});
      _exit(kSignalExit + number);
    }
    if (!handled) {
      logger_->Info("stopped while starting", {{"signal", number}});
      _exit(EXIT_SUCCESS);
    }
  }
}

}  // namespace deepencoder
