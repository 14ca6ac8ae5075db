#include "server/reloader.h"

#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/clock.h"
#include "server/engine/thread_name.h"

namespace deepencoder {

std::string_view Name(ReloadResult result) {
  switch (result) {
    case ReloadResult::kOk:
      return "ok";
    case ReloadResult::kBusy:
      return "busy";
    case ReloadResult::kMemory:
      return "memory";
    case ReloadResult::kCheckpoint:
      return "checkpoint";
    case ReloadResult::kStopping:
      return "stopping";
    case ReloadResult::kFailed:
      return "failed";
  }
  return "unknown";
}

ReloadResult ReloadResultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ReloadResult::kOk;
    case absl::StatusCode::kAborted:
      return ReloadResult::kBusy;
    case absl::StatusCode::kResourceExhausted:
      return ReloadResult::kMemory;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return ReloadResult::kCheckpoint;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnavailable:
      return ReloadResult::kStopping;
    default:
      return ReloadResult::kFailed;
  }
}

Reloader::~Reloader() {
  Close();
  if (thread_.joinable()) thread_.join();
}

void Reloader::Open() {
  const MutexLock lock(mutex_);
  if (state_ != State::kStarting) return;
  state_ = State::kIdle;
  thread_ = std::thread([this] { Run(); });
}

void Reloader::Start(const std::string& folder, Done done) {
  absl::Status refusal;
  {
    const MutexLock lock(mutex_);
    switch (state_) {
      case State::kIdle:
        state_ = State::kBusy;
        folder_ = folder;
        done_ = std::move(done);
        changed_.NotifyAll();
        return;
      case State::kBusy:
        refusal = absl::AbortedError("another reload is under way");
        break;
      case State::kStarting:
        refusal = absl::UnavailableError("the server is starting");
        break;
      case State::kClosed:
        refusal = absl::UnavailableError("the server is stopping");
        break;
    }
  }
  done(refusal);
}

void Reloader::Close() {
  Done told;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    state_ = State::kClosed;
    told = std::exchange(done_, nullptr);
    changed_.NotifyAll();
  }
  if (told) told(absl::UnavailableError("the server is stopping"));
}

bool Reloader::AwaitEnd(absl::Time deadline) {
  const MutexLock lock(mutex_);
  while (working_) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mutex_, left);
  }
  return true;
}

void Reloader::Run() {
  NameThisThread("reload");
  while (true) {
    std::string folder;
    {
      const MutexLock lock(mutex_);
      while (state_ == State::kIdle) changed_.Wait(mutex_);
      if (state_ == State::kClosed) return;
      folder = folder_;
      working_ = true;
    }
    absl::StatusOr<ReloadReport> report;
    // Nothing of ours throws, but allocation does, and the server must not end by it.
    try {
      report = work_(folder, stop_);
    } catch (const std::bad_alloc&) {
      report = absl::ResourceExhaustedError("no memory for a second model");
    } catch (const std::exception& e) {
      report = absl::InternalError(absl::StrCat("during the reload: ", e.what()));
    }
    Done told;
    {
      const MutexLock lock(mutex_);
      working_ = false;
      if (state_ == State::kBusy) state_ = State::kIdle;
      told = std::exchange(done_, nullptr);
      changed_.NotifyAll();
    }
    if (told) told(report);
  }
}

}  // namespace deepencoder
