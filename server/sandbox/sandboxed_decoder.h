// Decodes in worker processes that can do nothing else: a file that takes its decoder over, makes it crash
// or never end, costs its own answer and no more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
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
  int workers = 1;                              // as many images are decoded at once
  std::function<void(const std::string&)> log;  // a line about a worker; may be empty. Thread-safe
};

class SandboxedDecoder final : public ImageDecoder {
 public:
  // Returns when every worker is confined and ready. To be called from a thread that lives as long as the
  // decoder: workers die with the thread that started them. `observer` may be null, or must outlive it.
  // Errors: UNAVAILABLE, RESOURCE_EXHAUSTED: why there can be no workers here.
  static absl::StatusOr<std::unique_ptr<SandboxedDecoder>> Create(SandboxOptions options,
                                                                  SandboxObserver* observer);
  ~SandboxedDecoder() override;  // no image that it gave may be left

  // Waits for a worker if all are at work. An image keeps its worker, in whose memory it lies. Errors as
  // WorkerProcess::Decode, and RESOURCE_EXHAUSTED if a worker had to be replaced and could not be.
  absl::StatusOr<HeldImage> Decode(std::span<const std::byte> file,
                                   const DecodeOptions& options) override;

 private:
  SandboxedDecoder(SandboxOptions options, SandboxObserver* observer)
      : options_(std::move(options)), observer_(observer) {}

  // Holds one of the workers' places, and gives it back at its end.
  class Lease;

  // A place, which is empty if its worker has ended.
  std::unique_ptr<WorkerProcess> Take();
  void GiveBack(std::unique_ptr<WorkerProcess> worker);
  // Null or ended: another in its place. Errors as Start and AwaitReady.
  absl::Status EnsureAlive(std::unique_ptr<WorkerProcess>& worker);
  void CountAlive(int change);
  void CountEnd(WorkerEnd end);

  const SandboxOptions options_;
  SandboxObserver* const observer_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<WorkerProcess>> idle_ ABSL_GUARDED_BY(mutex_);
  int alive_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace deepencoder
