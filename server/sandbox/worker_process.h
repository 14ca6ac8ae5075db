// The server's side of one decode worker.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "encoder/image/decode.h"
#include "server/sandbox/protocol.h"
#include "server/sandbox/shared_region.h"

namespace deepencoder {

struct WorkerOptions {
  std::string program = "/proc/self/exe";  // its main() calls RunDecodeWorker
  size_t max_file_bytes = 0;
  int64_t max_pixels = 0;
  absl::Duration cpu_limit;  // of an image
};

// Why a worker is no more.
enum class WorkerEnd : uint8_t {
  kCrash,    // by a signal of its own making: the image's doing
  kTimeout,  // killed by the server, for taking too long
  kGone,     // for any other reason, such as the kernel's lack of memory
  kNone,     // it lives
};

inline constexpr WorkerEnd kWorkerEnds[] = {WorkerEnd::kCrash, WorkerEnd::kTimeout,
                                            WorkerEnd::kGone};

struct PictureSize {
  int width, height;
};

// Not thread-safe: one image at a time.
class WorkerProcess {
 public:
  // Starts it and does not wait for it. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const WorkerOptions& options);
  ~WorkerProcess();  // ends it
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Returns when it can decode, at once from the second time on. Errors: UNAVAILABLE with the reason.
  absl::Status AwaitReady();

  // Whether it takes the next image, as far as the kernel has said.
  bool Listening() const;

  // Whether it has left the CPU alone since its last answer. If not, whoever has taken it over works: to be ended.
  bool Resting() const;
  void Kill();

  // Afterwards pixels() holds the picture, upright, until the next call. Errors: the worker's own, as
  // DecodeImage, with a text that is printable ASCII; UNAVAILABLE if its memory cannot be limited; when it has ended over the image,
  // INVALID_ARGUMENT (kCrash, kTimeout) or INTERNAL (kGone), and end() says so.
  absl::StatusOr<PictureSize> Decode(std::span<const std::byte> file, const ImageHeader& header,
                                     const DecodeOptions& options);

  const std::byte* pixels() const { return pixels_->data(); }
  int images() const { return images_; }  // that it was asked to decode
  WorkerEnd end() const { return end_; }

  // Gives back what the regions hold beyond the memory of most images, whoever filled it; pixels() are gone.
  void Trim();

 private:
  WorkerProcess(const WorkerOptions& options, std::unique_ptr<SharedRegion> file,
                std::unique_ptr<SharedRegion> pixels)
      : options_(options), file_(std::move(file)), pixels_(std::move(pixels)) {}

  absl::Status Spawn();
  absl::Duration CpuTime() const;
  // To what it has and what decoding takes. Errors: UNAVAILABLE; an earlier limit stays.
  absl::Status LimitMemory(uint64_t decode_bytes);
  // Errors: the worker has ended, or was given up.
  absl::StatusOr<DecodeAnswer> AwaitAnswer();
  // Collects the process, which has ended or been killed, and says what the image is answered.
  absl::Status Ended(bool timed_out);

  const WorkerOptions options_;
  const std::unique_ptr<SharedRegion> file_, pixels_;
  int socket_ = -1;
  pid_t pid_ = -1;  // -1: none, or collected
  bool ready_ = false;
  uint64_t address_space_ = 0;
  uint64_t memory_limit_ = 0;   // as it is in force; 0: none yet
  absl::Duration cpu_at_rest_;  // what it had used when it last had nothing more to do
  int images_ = 0;
  WorkerEnd end_ = WorkerEnd::kNone;
};

}  // namespace deepencoder
