#include "server/sandbox/sandboxed_decoder.h"

#include <algorithm>
#include <opencv2/core.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/thread_name.h"

namespace deepencoder {
namespace {

// Images before a worker's last, while its successor starts.
constexpr int kStartAhead = 16;
// How often idle workers are looked at.
constexpr absl::Duration kLook = absl::Seconds(1);

}  // namespace

std::string_view Name(WorkerEnd end) {
  switch (end) {
    case WorkerEnd::kNone:
      return "none";
    case WorkerEnd::kCrash:
      return "crash";
    case WorkerEnd::kTimeout:
      return "timeout";
    case WorkerEnd::kGone:
      return "gone";
  }
  return "unknown";
}

class SandboxedDecoder::Lease {
 public:
  explicit Lease(SandboxedDecoder* owner) : owner_(owner), place_(owner->Take()) {}
  ~Lease() { owner_->GiveBack(std::move(place_)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Place& place() { return place_; }

 private:
  SandboxedDecoder* const owner_;
  Place place_;
};

absl::StatusOr<std::unique_ptr<SandboxedDecoder>> SandboxedDecoder::Create(
    SandboxOptions options, SandboxObserver* observer) {
  std::unique_ptr<SandboxedDecoder> decoder(new SandboxedDecoder(std::move(options), observer));
  {
    MutexLock lock(decoder->mutex_);
    decoder->idle_.reserve(static_cast<size_t>(decoder->options_.workers));  // GiveBack cannot fail
  }
  // All are started, then waited for: their starts overlap.
  std::vector<std::unique_ptr<WorkerProcess>> started;
  for (int i = 0; i < decoder->options_.workers; ++i) {
    auto worker = WorkerProcess::Start(decoder->options_.worker);
    if (!worker.ok()) return worker.status();
    started.push_back(*std::move(worker));
  }
  for (std::unique_ptr<WorkerProcess>& worker : started) {
    if (absl::Status status = worker->AwaitReady(); !status.ok()) return status;
    decoder->CountAlive(1);
    decoder->GiveBack({std::move(worker), nullptr});
  }
  decoder->watch_ = std::thread([watched = decoder.get()] { watched->Watch(); });
  return decoder;
}

SandboxedDecoder::~SandboxedDecoder() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.NotifyOne();
  if (watch_.joinable()) watch_.join();
}

void SandboxedDecoder::Watch() {
  NameThisThread("decode-watch");
  MutexLock lock(mutex_);
  while (!stopping_) {
    for (Place& place : idle_) {
      if (place.worker == nullptr) continue;
      if (!place.worker->Resting()) place.worker->Kill();  // EnsureAlive replaces it
      place.worker->Trim();
    }
    stop_.WaitFor(mutex_, kLook);
  }
}

SandboxedDecoder::Place SandboxedDecoder::Take() {
  MutexLock lock(mutex_);
  while (idle_.empty()) changed_.Wait(mutex_);
  Place place = std::move(idle_.back());
  idle_.pop_back();
  return place;
}

void SandboxedDecoder::GiveBack(Place place) {
  const bool ended = place.worker == nullptr;
  if (place.successor != nullptr &&
      (ended || place.worker->images() % options_.images_per_worker == 0)) {
    if (ended) CountAlive(1);
    place.worker = std::move(place.successor);
  }
  if (place.worker != nullptr) place.worker->Trim();
  {
    MutexLock lock(mutex_);
    idle_.push_back(std::move(place));
  }
  changed_.NotifyOne();
}

void SandboxedDecoder::StartSuccessor(Place& place) {
  const int ahead = std::min(kStartAhead, options_.images_per_worker - 1);
  if ((place.worker->images() + ahead) % options_.images_per_worker != 0) return;
  auto made = WorkerProcess::Start(options_.worker);
  if (made.ok()) {
    place.successor = *std::move(made);
  } else if (options_.log) {  // the worker goes on, and it is tried again after as many images
    options_.log(absl::StrCat("a decode worker stays for longer than its ",
                              options_.images_per_worker,
                              " images: ", std::string(made.status().message())));
  }
}

void SandboxedDecoder::CountAlive(int change) {
  MutexLock lock(mutex_);
  alive_ += change;
  if (observer_ != nullptr) observer_->OnDecodeWorkers(alive_);
}

void SandboxedDecoder::CountEnd(WorkerEnd end) {
  CountAlive(-1);
  if (observer_ != nullptr) observer_->OnDecodeWorkerEnd(end);
}

absl::Status SandboxedDecoder::EnsureAlive(Place& place) {
  std::unique_ptr<WorkerProcess>& worker = place.worker;
  if (worker != nullptr && worker->AwaitReady().ok() && worker->Listening() && worker->Resting()) {
    return absl::OkStatus();
  }
  if (worker != nullptr) {
    CountEnd(WorkerEnd::kGone);
    if (options_.log) {
      options_.log(worker->Resting()
                       ? "a decode worker has ended while idle: replaced"
                       : "a decode worker used CPU time while it had no image: replaced");
    }
    worker.reset();
    place.successor.reset();  // of a worker that is fresh now
  }
  auto made = WorkerProcess::Start(options_.worker);
  if (!made.ok()) return made.status();
  if (absl::Status status = (*made)->AwaitReady(); !status.ok()) {
    return absl::ResourceExhaustedError(std::string(status.message()));
  }
  worker = *std::move(made);
  CountAlive(1);
  return absl::OkStatus();
}

absl::StatusOr<HeldImage> SandboxedDecoder::Decode(std::span<const std::byte> file,
                                                   const DecodeOptions& options) {
  const absl::StatusOr<ImageHeader> header = ReadHeader(file, options);
  if (!header.ok()) return header.status();
  const auto lease = std::make_shared<Lease>(this);
  std::unique_ptr<WorkerProcess>& worker = lease->place().worker;
  if (absl::Status status = EnsureAlive(lease->place()); !status.ok()) return status;
  StartSuccessor(lease->place());
  const absl::StatusOr<PictureSize> size = worker->Decode(file, *header, options);
  if (const WorkerEnd end = worker->end(); end != WorkerEnd::kNone) {
    worker.reset();
    CountEnd(end);
    if (options_.log) {
      options_.log(absl::StrCat("a decode worker has ended (", std::string(Name(end)),
                                "): ", std::string(size.status().message())));
    }
  }
  if (!size.ok()) return size.status();
  // OpenCV has no matrix of constant data.
  auto* pixels = const_cast<std::byte*>(worker->pixels());
  return HeldImage{lease, RgbImage(cv::Mat(size->height, size->width, CV_8UC3, pixels))};
}

}  // namespace deepencoder
