// One reload of the weights at a time, on a thread of its own: it takes seconds, and the server answers
// signals and calls meanwhile.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// The label of deepencoder_reloads_total.
enum class ReloadResult : uint8_t { kOk, kBusy, kMemory, kCheckpoint, kStopping, kFailed };
inline constexpr ReloadResult kReloadResults[] = {
    ReloadResult::kOk,         ReloadResult::kBusy,     ReloadResult::kMemory,
    ReloadResult::kCheckpoint, ReloadResult::kStopping, ReloadResult::kFailed};
std::string_view Name(ReloadResult result);
ReloadResult ReloadResultOf(const absl::Status& status);

struct ReloadReport {
  std::string folder;
  std::string old_fingerprint, new_fingerprint;
  double seconds = 0;
};

// Thread-safe.
class Reloader {
 public:
  // Loads the checkpoint of `folder` (empty: the one that is served) and switches to it. Returns early
  // once `stop` is true, as far as it can.
  using Work = std::function<absl::StatusOr<ReloadReport>(const std::string& folder,
                                                          const std::atomic<bool>& stop)>;
  // How it ended; from the reload's thread, or before Start or Close returns.
  using Done = std::function<void(const absl::StatusOr<ReloadReport>&)>;

  explicit Reloader(Work work) : work_(std::move(work)) {}
  ~Reloader();
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;

  // From now on reloads are started.
  void Open();

  // `done` is called once. Errors it gets beside those of the work: ABORTED (another one is under way),
  // UNAVAILABLE (not open yet, or closed).
  void Start(const std::string& folder, Done done);

  // Starts no more and asks one that is under way to end; its `done` gets UNAVAILABLE now.
  void Close();
  // After Close: whether none is under way any more, waiting until `deadline`. If one is, the process must
  // end without destroying what its work uses, or this.
  bool AwaitEnd(absl::Time deadline);

 private:
  void Run();

  const Work work_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar changed_;
  enum class State : uint8_t {
    kStarting,
    kIdle,
    kBusy,
    kClosed
  } state_ ABSL_GUARDED_BY(mutex_) = State::kStarting;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  std::string folder_ ABSL_GUARDED_BY(mutex_);
  Done done_ ABSL_GUARDED_BY(mutex_);  // empty once told
  std::thread thread_;
};

}  // namespace deepencoder
