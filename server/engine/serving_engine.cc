#include "server/engine/serving_engine.h"

#include <exception>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "encoder/model/assemble.h"
#include "server/engine/image_cost.h"
#include "server/engine/retry_hint.h"

namespace deepencoder {
namespace {

absl::Status StatusOf(DropReason reason, Stage before) {
  const std::string text = " before the end of the step '" + std::string(Name(before)) + "'";
  return reason == DropReason::kDeadline
             ? absl::DeadlineExceededError("the deadline passed, or would pass," + text)
             : absl::CancelledError("the call was cancelled" + text);
}

absl::Status NoDevice() {
  return absl::UnavailableError("every device of this server has failed or is stuck");
}

absl::Status NoMemoryToMoveTo() {
  return absl::InternalError(
      "a device that is stuck may still write to the memory that this image's rows were to go to");
}

absl::Status Stopping() { return absl::UnavailableError("the server is shutting down"); }

absl::Status CheckDevices(const std::vector<DeviceSlots>& devices, const SpecialRows& special) {
  if (devices.empty()) return absl::InvalidArgumentError("the engine needs a device");
  for (const DeviceSlots& device : devices) {
    if (device.backend == nullptr || device.slots.empty()) {
      return absl::InvalidArgumentError("a device of the engine has no slots");
    }
  }
  const size_t width = kEmbeddingWidth;
  if (special.image_newline.size() != width || special.view_separator.size() != width) {
    return absl::InvalidArgumentError(
        absl::StrCat("image_newline and view_seperator must have ", width, " elements; they have ",
                     special.image_newline.size(), " and ", special.view_separator.size()));
  }
  return absl::OkStatus();
}

absl::Status NoThreads(const std::system_error& error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot start the engine's threads: ", error.what()));
}

}  // namespace

// ---------------------------------------------------------------- life

absl::StatusOr<std::unique_ptr<ServingEngine>> ServingEngine::Create(
    EngineOptions options, std::vector<DeviceSlots> devices, SpecialRows special,
    EngineObserver* observer, const Clock* clock) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  if (options.decoder == nullptr) options.decoder = std::make_shared<InProcessDecoder>();
  if (absl::Status status = CheckDevices(devices, special); !status.ok()) return status;
  try {
    std::unique_ptr<ServingEngine> engine(new ServingEngine(std::move(options), observer, clock));
    MutexLock swap(engine->swap_);
    std::shared_ptr<BackendSet> set = engine->MakeSet(std::move(devices), std::move(special));
    MutexLock current(engine->current_mutex_);
    engine->current_ = std::move(set);
    return engine;
  } catch (const std::system_error& error) {
    return NoThreads(error);
  }
}

ServingEngine::ServingEngine(EngineOptions options, EngineObserver* observer, const Clock* clock)
    : options_(std::move(options)),
      observer_(observer),
      clock_(clock),
      admission_(options_.limits, observer, clock),
      gauge_(observer),
      cache_(options_.cache_bytes > 0
                 ? std::make_unique<ResultCache>(options_.cache_bytes, observer)
                 : nullptr),
      watchdog_(options_.device_timeout, clock),
      replies_(std::make_unique<ReplyThread>()),
      decode_pool_(std::make_unique<DecodePool>(
          DecodeThreadCount(options_.decode_threads), observer,
          [this](const std::shared_ptr<Request>& request) { Prepare(request); })) {}

ServingEngine::~ServingEngine() {
  admission_.Close();
  stopping_.store(true, std::memory_order_release);
  for (const std::shared_ptr<Request>& request : decode_pool_->Stop()) Fail(request, Stopping());
  std::shared_ptr<BackendSet> last;
  {
    MutexLock lock(current_mutex_);
    last.swap(current_);
  }
  if (last != nullptr) last->Stop();
  last.reset();
  replies_->Stop();  // now nobody holds tasks, and with them the set, any more
  retired_->DestroyAll();
}

std::shared_ptr<BackendSet> ServingEngine::backends() const {
  MutexLock lock(current_mutex_);
  return current_;
}

std::shared_ptr<BackendSet> ServingEngine::MakeSet(std::vector<DeviceSlots> devices,
                                                   SpecialRows special) {
  const PoolContext context = {.events = this,
                               .observer = observer_,
                               .gauge = &gauge_,
                               .clock = clock_,
                               .watchdog = &watchdog_,
                               .log = options_.log};
  return RetiredSets::Share(std::make_unique<BackendSet>(std::move(devices), std::move(special),
                                                         ++generations_, options_.batch, context),
                            retired_);
}

bool ServingEngine::healthy() const { return !backends()->any_lost(); }

bool ServingEngine::Drain(absl::Time deadline) {
  admission_.Close();
  return admission_.AwaitIdle(deadline);
}

absl::Status ServingEngine::SwapBackends(std::vector<DeviceSlots> devices, SpecialRows special,
                                         const std::function<void()>& on_switch) {
  if (absl::Status status = CheckDevices(devices, special); !status.ok()) return status;
  MutexLock swap(swap_);
  std::shared_ptr<BackendSet> set;
  try {
    set = MakeSet(std::move(devices), std::move(special));
  } catch (const std::system_error& error) {
    return NoThreads(error);
  }
  {
    MutexLock lock(current_mutex_);
    current_.swap(set);
  }
  if (on_switch) on_switch();
  if (cache_ != nullptr) cache_->Clear();
  const uint64_t old_generation = set->generation();
  set.reset();
  retired_->AwaitAndDestroy(old_generation);
  return absl::OkStatus();
}

// ---------------------------------------------------------------- step 1: admission

void ServingEngine::Encode(EncodeJob job, EncodeDone done) {
  auto request = std::make_shared<Request>(std::move(job), std::move(done), clock_->Now());
  absl::Status status = Admit(request.get());
  if (Timeline* timeline = request->job.timeline.get(); timeline != nullptr) {
    timeline->Add("admission", request->arrival, clock_->Now());
  }
  if (!status.ok()) {
    request->done(std::move(status));
    return;
  }
  Submit(request);
}

absl::Status ServingEngine::Admit(Request* request) {
  if (const auto gone = request->Gone(request->arrival)) {
    observer_->OnDrop(*gone, Stage::kDecode);
    return StatusOf(*gone, Stage::kDecode);
  }
  if (!CanServe()) {
    observer_->OnReject(RejectReason::kUnhealthy);
    return NoDevice();
  }
  absl::StatusOr<ImageCost> cost = CostOf(request->job, options_.decode);
  if (!cost.ok()) return cost.status();
  request->charge = cost->charge;
  request->views = std::move(cost->views);
  request->bytes_to_decode = request->charge.bytes;
  return admission_.Admit(request->charge);
}

void ServingEngine::Submit(const std::shared_ptr<Request>& request) {
  const absl::Time due = DueTime(request->job.deadline, request->arrival, options_.batch.patience);
  if (!decode_pool_->Submit(request, due)) Fail(request, Stopping());
  if (!CanServe()) FailWaiting();  // after others were failed, perhaps
}

bool ServingEngine::CanServe() const {
  const std::shared_ptr<BackendSet> set = backends();  // null at the engine's end
  return set != nullptr && !set->all_lost() &&
         stuck_threads_ < DecodeThreadCount(options_.decode_threads);
}

void ServingEngine::FailWaiting() {
  for (const std::shared_ptr<Request>& request : decode_pool_->TakeWaiting()) {
    Fail(request, NoDevice());
  }
}

// ---------------------------------------------------------------- step 2: decode pool

void ServingEngine::Prepare(const std::shared_ptr<Request>& request) {
  request->begun = clock_->Now();
  if (DropIfGone(request, Stage::kDecode)) return;
  const std::shared_ptr<BackendSet> backends = this->backends();
  absl::Status status;
  // Nothing of ours throws, but allocation and OpenCV do, and a thread must not end by it.
  try {
    if (AskCache(request, backends->generation()) || DropIfLate(request, *backends)) return;
    status = DecodeAndQueue(request, backends);
  } catch (const std::bad_alloc&) {
    status = WithRetryAfter(absl::ResourceExhaustedError("no memory for this image"),
                            admission_.RetryDelay());
  } catch (const std::exception& e) {  // the text has versions and paths: for the log alone
    if (options_.log) options_.log(std::string("while an image was prepared: ") + e.what());
    status = absl::InternalError("a library failed while this image was prepared");
  }
  if (!status.ok()) Fail(request, status);
}

bool ServingEngine::AskCache(const std::shared_ptr<Request>& request, uint64_t generation) {
  if (cache_ == nullptr || request->leads) return false;
  request->key = KeyOf(request->job, generation);
  if (!request->key) return false;
  EncodeResult result;
  switch (cache_->Join(request, &result)) {
    case ResultCache::Role::kLead:
      return false;
    case ResultCache::Role::kFollow:
      return true;
    case ResultCache::Role::kHit:
      Share(request, result);
      return true;
  }
  return false;
}

absl::StatusOr<HeldImage> ServingEngine::Decode(const EncodeJob& job) const {
  if (const auto* raw = std::get_if<RawPixels>(&job.image)) {
    // Looked at, not copied: the job outlives the image. OpenCV has no matrix of constant data.
    auto* pixels = const_cast<std::byte*>(raw->rgb.bytes.data());
    return HeldImage{nullptr, RgbImage(cv::Mat(raw->height, raw->width, CV_8UC3, pixels))};
  }
  DecodeOptions options = options_.decode;
  options.alpha = job.alpha;
  options.gray16 = job.gray16;
  return options_.decoder->Decode(std::get<EncodedFile>(job.image).file.bytes, options);
}

absl::Status ServingEngine::DecodeAndQueue(const std::shared_ptr<Request>& request,
                                           const std::shared_ptr<BackendSet>& backends) {
  const EncodeJob& job = request->job;
  StageSeconds seconds;
  auto lap = [&, last = clock_->Now()](Stage stage, double* spent) mutable {
    const absl::Time now = clock_->Now();
    const absl::Time begin = std::exchange(last, now);
    *spent = SecondsBetween(begin, now);
    observer_->OnStage(stage, job.mode, *spent);
    if (job.timeline != nullptr) job.timeline->Add(Name(stage), begin, now);
  };

  const absl::StatusOr<HeldImage> held = Decode(job);
  if (!held.ok()) return held.status();
  const RgbImage& image = held->image;
  lap(Stage::kDecode, &seconds.decode);

  if (DropIfGone(request, Stage::kViews)) return absl::OkStatus();
  const absl::StatusOr<ViewPlan> plan =
      PlanViews(image.width(), image.height(), job.mode, job.max_tiles);
  if (!plan.ok()) return plan.status();
  const std::shared_ptr<Assignment> assignment = Assignment::Make(backends, *plan);
  if (assignment == nullptr) return NoDevice();
  bool stuck = false;
  absl::StatusOr<std::shared_ptr<const ViewSet>> views =
      assignment->pool().MakeViews(image, *plan, [&](const absl::Status& why) {
        stuck = true;
        ++stuck_threads_;
        Fail(request, why);
        if (!CanServe()) FailWaiting();
      });
  if (stuck) --stuck_threads_;
  if (!views.ok()) return WithHint(views.status());
  if (request->answered()) return absl::OkStatus();
  lap(Stage::kViews, &seconds.views);

  if (DropIfGone(request, Stage::kQueue)) return absl::OkStatus();
  SequenceLayout layout = LayoutOf(job.mode, plan->tiles);
  if ((*views)->size() != static_cast<int>(layout.views.size())) {
    return absl::InternalError(
        absl::StrCat("the backend made ", (*views)->size(), " views of ", layout.views.size()));
  }
  const size_t reply_bytes = ReplyBytes(layout.rows, job.dtype);
  absl::StatusOr<TaskRows> rows = RowsFor(job, reply_bytes);
  if (!rows.ok()) return rows.status();
  // Now, beside other images' computing, and not when the last view is done.
  FillMarkerRows(layout, backends->special().image_newline.data(),
                 backends->special().view_separator.data(), job.dtype, rows->data.get());
  lap(Stage::kAssemble, &seconds.assemble);

  // The pixels go when this function returns.
  admission_.Resize(&request->charge,
                    StoredBytes(job) + static_cast<int64_t>((*views)->bytes() + reply_bytes));
  DevicePool& pool = assignment->pool();
  const auto task = std::make_shared<ImageTask>(request, assignment, *std::move(views), *plan,
                                                std::move(layout), *std::move(rows), seconds);
  {
    MutexLock lock(times_mutex_);
    times_[job.mode].Add(SecondsBetween(request->begun, clock_->Now()));
  }
  // The device was lost just now: to another one, by the same way.
  if (!pool.Enqueue(task)) Resubmit(request);
  return absl::OkStatus();
}

absl::StatusOr<TaskRows> ServingEngine::RowsFor(const EncodeJob& job, size_t bytes) const {
  // What others get from the cache must not lie where a client can change it.
  if (job.reply_memory == nullptr || cache_ != nullptr) {
    // Not filled with zeros: markers and views cover every row.
    return TaskRows{.data = std::make_shared_for_overwrite<std::byte[]>(bytes)};
  }
  const std::span<std::byte> memory = job.reply_memory->bytes();
  if (memory.size() < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rows have ", bytes, " bytes; the memory for them has ", memory.size()));
  }
  return TaskRows{.data = std::shared_ptr<std::byte[]>(job.reply_memory, memory.data()),
                  .in_reply_memory = true};
}

absl::Status ServingEngine::WithHint(const absl::Status& status) const {
  return absl::IsResourceExhausted(status) ? WithRetryAfter(status, admission_.RetryDelay())
                                           : status;
}

void ServingEngine::Resubmit(const std::shared_ptr<Request>& request) {
  admission_.Resize(&request->charge, request->bytes_to_decode);
  Submit(request);
}

// ---------------------------------------------------------------- step 3: what slots report

void ServingEngine::OnEncoded(const std::shared_ptr<ImageTask>& task, bool idle) {
  if (!task->request()->ClaimAnswer()) return;
  // Another thread would have to wake up first, and finds the rows in this one's cache.
  if (idle) return Succeed(*task);
  replies_->Post([this, task] { Succeed(*task); });
}

void ServingEngine::OnFailed(const std::shared_ptr<ImageTask>& task, const absl::Status& why) {
  if (!task->Leave()) return;
  task->WhenUnwritten(
      [this, request = task->request(), why = WithHint(why)] { Fail(request, why); });
}

void ServingEngine::OnStuck(const std::shared_ptr<ImageTask>& task, const absl::Status& why) {
  task->Abandon();
  if (task->Leave()) Fail(task->request(), why);
}

void ServingEngine::OnGone(const std::shared_ptr<ImageTask>& task, DropReason reason) {
  if (!task->Leave()) return;
  observer_->OnDrop(reason, Stage::kCompute);
  task->WhenUnwritten([this, request = task->request(), why = StatusOf(reason, Stage::kCompute)] {
    Fail(request, why);
  });
}

void ServingEngine::OnLost(const std::vector<std::shared_ptr<ImageTask>>& waiting) {
  for (const std::shared_ptr<ImageTask>& task : waiting) {
    if (!task->Leave()) continue;
    // Whoever runs this holds the task.
    task->WhenUnwritten([this, left = task.get(), request = task->request()] {
      if (left->abandoned()) return Fail(request, NoMemoryToMoveTo());
      Resubmit(request);
    });
  }
  if (!CanServe()) FailWaiting();
}

// ---------------------------------------------------------------- step 4: answers

bool ServingEngine::DropIfGone(const std::shared_ptr<Request>& request, Stage before) {
  const auto gone = request->Gone(clock_->Now());
  if (gone) Drop(request, *gone, before);
  return gone.has_value();
}

bool ServingEngine::DropIfLate(const std::shared_ptr<Request>& request,
                               const BackendSet& backends) {
  const absl::Time deadline = request->job.deadline;
  if (deadline == absl::InfiniteFuture()) return false;
  const Outlook outlook = backends.Foresee(request->views, deadline);
  absl::Duration needed = outlook.time;
  {
    MutexLock lock(times_mutex_);
    needed += times_[request->job.mode].Get();
  }
  if (deadline >= request->begun + needed) return false;
  if (!outlook.crowded && !decode_pool_->HasWaiting()) return false;
  Drop(request, DropReason::kDeadline, Stage::kDecode);
  return true;
}

void ServingEngine::Drop(const std::shared_ptr<Request>& request, DropReason reason, Stage before) {
  if (!request->ClaimAnswer()) return;
  observer_->OnDrop(reason, before);
  PostDenial(request, StatusOf(reason, before));
}

void ServingEngine::Fail(const std::shared_ptr<Request>& request, const absl::Status& why) {
  if (!request->ClaimAnswer()) return;
  PostDenial(request, why);
}

void ServingEngine::PostDenial(const std::shared_ptr<Request>& request, const absl::Status& why) {
  replies_->Post([this, request, why] { Deny(*request, why); });
}

void ServingEngine::Share(const std::shared_ptr<Request>& request, const EncodeResult& result) {
  if (!request->ClaimAnswer()) return;
  replies_->Post([this, request, result] {
    EncodeResult own = result;
    own.cache_hit = true;
    own.seconds = {.total = SecondsBetween(request->arrival, clock_->Now())};
    Reply(*request, std::move(own));
  });
}

void ServingEngine::Succeed(const ImageTask& task) {
  const Request& request = *task.request();
  const absl::Time now = clock_->Now();
  const EncodeResult result = task.Result(now);
  observer_->OnStage(Stage::kQueue, result.mode, result.seconds.queue);
  observer_->OnStage(Stage::kCompute, result.mode, result.seconds.compute);
  if (request.job.timeline != nullptr) task.AddSteps(request.job.timeline.get());
  Reply(request, result);
  if (!request.leads) return;
  for (const std::shared_ptr<Request>& follower : cache_->Publish(*request.key, result)) {
    Share(follower, result);
  }
}

void ServingEngine::Deny(const Request& request, const absl::Status& why) {
  Reply(request, why);
  if (!request.leads) return;
  if (absl::IsInvalidArgument(why) || stopping_.load(std::memory_order_acquire)) {
    for (const std::shared_ptr<Request>& follower : cache_->Abandon(*request.key)) {
      Fail(follower, why);
    }
    return;
  }
  std::vector<std::shared_ptr<Request>> gone;
  const absl::Time now = clock_->Now();
  const std::shared_ptr<Request> next = cache_->PassOn(*request.key, now, &gone);
  for (const std::shared_ptr<Request>& follower : gone) {
    Drop(follower, follower->Gone(now).value_or(DropReason::kCancelled), Stage::kDecode);
  }
  if (next != nullptr) Submit(next);
}

void ServingEngine::Reply(const Request& request, absl::StatusOr<EncodeResult> answer) {
  if (answer.ok()) observer_->OnImage(answer->mode, answer->rows);
  admission_.Release(request.charge, request.arrival);
  request.done(std::move(answer));
  admission_.Answered();
}

}  // namespace deepencoder
