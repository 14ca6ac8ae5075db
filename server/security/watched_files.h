// Files that are read again when they change, such as certificates that are renewed while we serve.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"

namespace deepencoder {

// What tells that a file is another one, or has been written to. Symbolic links are followed: Kubernetes
// replaces the files of a volume by turning one link. Compared only with stamps of the same files.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = -1;
  int64_t modified_ns = 0, changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
std::vector<FileStamp> StampsOf(const std::vector<std::string>& paths);

// The whole of a file that holds a secret. Errors: NOT_FOUND, PERMISSION_DENIED (not readable, or other
// users may read or change it), INVALID_ARGUMENT (not a regular file, or over 1 MiB).
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);
// The same without the check of its mode.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

// Looks at the files once a period, from a thread of its own, and calls `changed` when they differ from
// what it saw before and have then stayed the same for a period: who writes a file in parts is waited for.
class WatchedFiles {
 public:
  enum class Why { kChanged, kAgain };
  // Returns whether it has made use of the change. If not it is called again each period (kAgain): what it failed
  // for may pass without a change of the files, a lack of descriptors say.
  using Changed = std::function<bool(Why)>;

  // `seen`: the stamps from before the files were first read.
  WatchedFiles(std::vector<std::string> paths, std::vector<FileStamp> seen, absl::Duration period,
               Changed changed);
  ~WatchedFiles();  // `changed` is not called afterwards
  WatchedFiles(const WatchedFiles&) = delete;
  WatchedFiles& operator=(const WatchedFiles&) = delete;

 private:
  void Run(std::vector<FileStamp> seen);

  const std::vector<std::string> paths_;
  const absl::Duration period_;
  const Changed changed_;
  Mutex mutex_;
  CondVar stopping_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace deepencoder
