// Decodes in worker processes that can do nothing else: a file that makes its decoder crash or never end
// costs its own answer and no more. One that takes its decoder over without a sound has what is left in that
// worker of images before it, and the images that the worker is given after it, until it is replaced: it can
// change their pixels, or give them away in the answers to others. The server and other workers are out of its reach.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/engine/image_decoder.h"
#include "server/engine/mutex.h"
#include "server/sandbox/worker_process.h"

namespace deepencoder {

std::string_view Name(WorkerEnd end);

// Hears of workers. Thread-safe, quick, calls nothing back.
class SandboxObserver {
 public:
  virtual ~SandboxObserver() = default;
  virtual void OnDecodeWorkers(int alive) = 0;  // new total
  virtual void OnDecodeWorkerEnd(WorkerEnd end) = 0;
};

struct SandboxOptions {
  WorkerOptions worker;
  int workers = 1;  // as many images are decoded at once
  // After as many a fresh worker takes the place of one, so that none that was taken over stays. A start takes
  // 13 ms of CPU time, which makes 13 us an image.
  int images_per_worker = 1000;
  std::function<void(const std::string&)> log;  // a line about a worker; may be empty. Thread-safe
};

class SandboxedDecoder final : public ImageDecoder {
 public:
  // Returns when every worker is confined and ready. To be called from a thread that lives as long as the
  // decoder: workers die with the thread that started them. `observer` may be null, or must outlive it.
  // Errors: UNAVAILABLE, RESOURCE_EXHAUSTED: why there can be no workers here. Throws std::system_error if
  // there is no thread to be had.
  static absl::StatusOr<std::unique_ptr<SandboxedDecoder>> Create(SandboxOptions options,
                                                                  SandboxObserver* observer);
  ~SandboxedDecoder() override;  // no image that it gave may be left

  // Waits for a worker if all are at work. To be called from threads that live as long as Create's. An image
  // keeps its worker, in whose memory it lies. Errors as WorkerProcess::Decode, and RESOURCE_EXHAUSTED if a
  // worker had to be replaced and could not be.
  absl::StatusOr<HeldImage> Decode(std::span<const std::byte> file,
                                   const DecodeOptions& options) override;

 private:
  SandboxedDecoder(SandboxOptions options, SandboxObserver* observer)
      : options_(std::move(options)), observer_(observer) {}

  // Holds one of the workers' places, and gives it back at its end.
  class Lease;

  struct Place {
    std::unique_ptr<WorkerProcess> worker;     // null: it has ended
    std::unique_ptr<WorkerProcess> successor;  // null unless the worker is at its last images
  };

  Place Take();
  void GiveBack(Place place);
  // To be called before each image.
  void StartSuccessor(Place& place);
  // Null, ended or at work without an image: another in its place. Errors as Start and AwaitReady.
  absl::Status EnsureAlive(Place& place);
  // A thread's: an idle worker neither goes on working nor fills its regions.
  void Watch();
  void CountAlive(int change);
  void CountEnd(WorkerEnd end);

  const SandboxOptions options_;
  SandboxObserver* const observer_;
  Mutex mutex_;
  CondVar changed_, stop_;
  std::vector<Place> idle_ ABSL_GUARDED_BY(mutex_);
  int alive_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watch_;
};

}  // namespace deepencoder
