// A value made from files, and made again when they change.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"
#include "server/log.h"
#include "server/security/watched_files.h"

namespace deepencoder {

// Thread-safe. Files of which no value can be made leave the value that was there in its place, and a
// line in the log; they are tried again each period.
template <typename T>
class Reloaded {
 public:
  using Load = std::function<absl::StatusOr<T>()>;
  // Told of each change of the files, and of each further attempt that ends in another way than the last.
  using Tried = std::function<void(bool ok)>;

  // `what` names the value in the log. `logger` outlives this. Errors: of the first load.
  static absl::StatusOr<std::unique_ptr<Reloaded>> Create(std::string what,
                                                          std::vector<std::string> paths,
                                                          absl::Duration period, Load load,
                                                          const Logger* logger, Tried tried) {
    std::vector<FileStamp> seen = StampsOf(paths);
    absl::StatusOr<T> first = load();
    if (!first.ok()) return first.status();
    return std::unique_ptr<Reloaded>(new Reloaded(std::move(what), std::move(paths),
                                                  std::move(seen), period, std::move(load), logger,
                                                  std::move(tried), *std::move(first)));
  }

  std::shared_ptr<const T> Get() const {
    const MutexLock lock(mutex_);
    return value_;
  }

 private:
  Reloaded(std::string what, std::vector<std::string> paths, std::vector<FileStamp> seen,
           absl::Duration period, Load load, const Logger* logger, Tried tried, T first)
      : what_(std::move(what)),
        load_(std::move(load)),
        logger_(logger),
        tried_(std::move(tried)),
        value_(std::make_shared<const T>(std::move(first))),
        watch_(std::move(paths), std::move(seen), period,
               [this](WatchedFiles::Why why) { return Again(why); }) {}

  bool Again(WatchedFiles::Why why) {
    absl::StatusOr<T> loaded = load_();
    const bool is_news = why == WatchedFiles::Why::kChanged || loaded.status() != last_;
    last_ = loaded.status();
    if (tried_ && is_news) tried_(loaded.ok());
    if (!loaded.ok()) {
      if (!is_news) return false;
      logger_->Error("a changed file cannot be used; what was read before stays in force",
                     {{"what", what_}, {"reason", std::string(loaded.status().message())}});
      return false;
    }
    auto value = std::make_shared<const T>(*std::move(loaded));
    {
      const MutexLock lock(mutex_);
      value_.swap(value);
    }
    logger_->Info("read again after a change", {{"what", what_}});
    return true;
  }

  const std::string what_;
  const Load load_;
  const Logger* const logger_;
  const Tried tried_;
  mutable Mutex mutex_;
  std::shared_ptr<const T> value_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_;   // of the last attempt; only the watching thread's
  WatchedFiles watch_;  // last: its thread uses all of the above
};

}  // namespace deepencoder
