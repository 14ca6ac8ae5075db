// Many images over one stream: this thread writes, another reads; a stream that breaks is opened again.
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/call_metadata.h"
#include "client/client_impl.h"
#include "client/retry.h"
#include "client/wire.h"

namespace deepencoder::client {
namespace {

using Stream = grpc::ClientReaderWriter<v1::EncodeImageRequest, v1::EncodeImageResponse>;

// An image that was taken and not answered for good.
struct Pending {
  std::shared_ptr<const v1::EncodeImageRequest> request;
  std::optional<SharedPool::Block> block;  // where its image and its reply lie, if not in messages
  Attempts attempts;
  absl::Time not_before = absl::InfinitePast();  // a retry's time
  bool sent = false;                             // on the stream that is open
};

class ManyCall {
 public:
  ManyCall(v1::VisionEncoder::Stub& stub, std::shared_ptr<Sharing> sharing,
           const RetryPolicy& retry, const std::function<std::optional<Image>()>& next,
           const EncodeOptions& options, size_t in_flight,
           const std::function<void(ManyResult)>& sink)
      : stub_(stub),
        sharing_(std::move(sharing)),
        retry_(retry),
        next_(next),
        options_(options),
        in_flight_(in_flight),
        sink_(sink),
        stream_attempts_(retry) {}

  absl::Status Run() {
    AskLimit();
    while (true) {
      const grpc::Status status = RunStream();
      if (finished()) return absl::OkStatus();
      // The stream ended although images are left: because of one that should not have been sent?
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && FailTooLarge()) continue;
      const grpc::StatusCode code =
          status.ok() ? grpc::StatusCode::UNAVAILABLE : status.error_code();
      const auto delay =
          stream_attempts_.DelayAfter(code, RetryDelayOf(status), absl::Now() + options_.timeout);
      if (!delay) return GiveUp(status);
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(*delay));
    }
  }

 private:
  bool finished() const { return source_empty_ && pending_.empty(); }

  static uint64_t SizeOf(const Image& image) {
    return image.encoded.empty() ? image.rgb.size() : image.encoded.size();
  }

  static uint64_t SizeOf(const v1::EncodeImageRequest& request) {
    return request.has_raw() ? request.raw().rgb().size() : request.encoded().size();
  }

  absl::Status TooLarge(uint64_t bytes) const {
    return absl::ResourceExhaustedError(
        absl::StrCat("the image has ", bytes, " bytes; the server's limit is ", max_bytes_));
  }

  // Answers the images that are over a limit which was not known when they were sent (the server did
  // not answer then, or has another now): gRPC ends the whole stream for a message far over it. False
  // if there is none.
  bool FailTooLarge() {
    AskLimit();
    bool failed = false;
    for (auto at = pending_.begin(); at != pending_.end();) {
      const uint64_t bytes = SizeOf(*at->second.request);
      if (bytes <= max_bytes_) {
        ++at;
        continue;
      }
      Give({at->first, TooLarge(bytes)});
      at = pending_.erase(at);
      failed = true;
    }
    return failed;
  }

  // A server that does not answer is met again by the stream, which says so.
  void AskLimit() {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
    v1::ModelInfo info;
    if (!stub_.GetModelInfo(&context, v1::GetModelInfoRequest(), &info).ok()) return;
    if (info.limits().max_image_bytes() != 0) max_bytes_ = info.limits().max_image_bytes();
  }

  // The reader gives what the server answered, the writer what it need not send.
  void Give(ManyResult result) {
    const std::lock_guard lock(sink_mutex_);
    sink_(std::move(result));
  }

  // One stream, from its opening to its status.
  grpc::Status RunStream() {
    grpc::ClientContext context;
    AddMetadata(options_, context);
    const std::unique_ptr<Stream> stream = stub_.EncodeImages(&context);
    {
      const std::lock_guard lock(mutex_);
      reading_ = true;
      last_reply_ = absl::Now();
      for (auto& [index, pending] : pending_) pending.sent = false;
    }
    std::thread reader([this, &stream] { ReadAll(*stream); });
    const bool timed_out = !WriteAll(*stream);
    if (timed_out) {
      context.TryCancel();
    } else {
      stream->WritesDone();
    }
    reader.join();
    grpc::Status status = stream->Finish();
    // What was not answered the server may still write.
    for (auto& [index, pending] : pending_) {
      if (pending.sent && pending.block) pending.block->Abandon();
    }
    if (timed_out) return {grpc::StatusCode::DEADLINE_EXCEEDED, "no reply within the timeout"};
    return status;
  }

  // Sends until all is answered or the stream has ended; false if no reply came for too long.
  bool WriteAll(Stream& stream) {
    while (true) {
      std::shared_ptr<const v1::EncodeImageRequest> request;
      bool wants_new = false;
      {
        std::unique_lock lock(mutex_);
        while (reading_ && !finished()) {
          request = TakeRetry();
          wants_new = request == nullptr && !source_empty_ && pending_.size() < in_flight_;
          if (request != nullptr || wants_new) break;
          changed_.wait_for(lock, absl::ToChronoNanoseconds(NextWake() - absl::Now()));
          if (reading_ && AnySent() && absl::Now() >= last_reply_ + options_.timeout) return false;
        }
      }
      // Neither under the lock: the source may read a file, and writing waits for the server.
      if (wants_new) request = TakeNew();
      if (request == nullptr && !wants_new) return true;
      if (request != nullptr && !stream.Write(*request)) return true;
    }
  }

  // An image that was sent before and whose time has come again; null if there is none.
  std::shared_ptr<const v1::EncodeImageRequest> TakeRetry() {
    for (auto& [index, pending] : pending_) {
      if (pending.sent || pending.not_before > absl::Now()) continue;
      MarkSent(pending);
      return pending.request;
    }
    return nullptr;
  }

  // The next image of the source that the server would take; null if it has no more.
  std::shared_ptr<const v1::EncodeImageRequest> TakeNew() {
    std::optional<Image> image = next_();
    for (; image && SizeOf(*image) > max_bytes_; image = next_()) {
      // It would be refused, after all its bytes.
      Give({next_index_++, TooLarge(SizeOf(*image))});
    }
    std::shared_ptr<v1::EncodeImageRequest> request;
    std::optional<SharedPool::Block> block;
    if (image) {
      request = std::make_shared<v1::EncodeImageRequest>(ToRequest(*std::move(image), options_));
      request->set_id(std::to_string(next_index_));
      if (sharing_ != nullptr) block = sharing_->Place(*request);
    }
    const std::lock_guard lock(mutex_);
    if (request == nullptr) {
      source_empty_ = true;
    } else {
      Pending pending{request, std::move(block), Attempts(retry_)};
      MarkSent(pending_.emplace(next_index_++, std::move(pending)).first->second);
    }
    return request;
  }

  // The time without replies counts from when there is something to reply to.
  void MarkSent(Pending& pending) {
    if (!AnySent()) last_reply_ = absl::Now();
    pending.sent = true;
  }

  bool AnySent() const {
    return std::any_of(pending_.begin(), pending_.end(),
                       [](const auto& entry) { return entry.second.sent; });
  }

  // When there may be something to do although no reply has come.
  absl::Time NextWake() const {
    absl::Time wake = std::min(last_reply_ + options_.timeout, absl::Now() + absl::Hours(1));
    for (const auto& [index, pending] : pending_) {
      if (!pending.sent) wake = std::min(wake, pending.not_before);
    }
    return wake;
  }

  void ReadAll(Stream& stream) {
    v1::EncodeImageResponse response;
    while (stream.Read(&response)) {
      HandleReply(std::move(response));
      response = v1::EncodeImageResponse();
    }
    const std::lock_guard lock(mutex_);
    reading_ = false;
    changed_.notify_all();
  }

  void HandleReply(v1::EncodeImageResponse response) {
    size_t index = 0;
    Pending* pending = nullptr;  // stays: only this thread takes images out while it runs
    const std::string& id = response.id();
    const auto [stop, error] = std::from_chars(id.data(), id.data() + id.size(), index);
    {
      const std::lock_guard lock(mutex_);
      const auto at = pending_.find(index);
      if (error != std::errc() || stop != id.data() + id.size() || at == pending_.end()) return;
      last_reply_ = absl::Now();
      stream_attempts_.Reset();
      pending = &at->second;
      if (response.has_error() &&
          (SendWhole(*pending, response.error()) || RetryLater(*pending, response.error()))) {
        changed_.notify_all();
        return;
      }
      // Its place is given away only after the sink has it, so that results do not pile up.
    }
    Give({index, ResultOf(*pending, std::move(response))});
    const std::lock_guard lock(mutex_);
    pending_.erase(index);
    changed_.notify_all();
  }

  // If it failed because of its memory: sends the image again, at once, through the socket.
  bool SendWhole(Pending& pending, const v1::Error& error) {
    const auto code = static_cast<grpc::StatusCode>(error.code());
    if (!pending.block || !Sharing::IsRefusal(code)) return false;
    auto whole = std::make_shared<v1::EncodeImageRequest>(*pending.request);
    Sharing::TakeBack(*whole, *pending.block);
    sharing_->OnRefusal(code, *pending.block);
    pending.block.reset();
    pending.request = std::move(whole);
    pending.sent = false;
    return true;
  }

  bool RetryLater(Pending& pending, const v1::Error& error) {
    std::optional<absl::Duration> hint;
    if (error.retry_after() > 0) hint = absl::Seconds(error.retry_after());
    const auto delay = pending.attempts.DelayAfter(static_cast<grpc::StatusCode>(error.code()),
                                                   hint, absl::Now() + options_.timeout);
    if (!delay) return false;
    pending.sent = false;
    pending.not_before = absl::Now() + *delay;
    return true;
  }

  static absl::StatusOr<Embeddings> ResultOf(Pending& pending, v1::EncodeImageResponse response) {
    if (!response.has_error()) {
      if (pending.block) {
        return Sharing::Collect(*pending.request, *std::move(pending.block), response);
      }
      return ToEmbeddings(std::move(response));
    }
    return absl::Status(static_cast<absl::StatusCode>(response.error().code()),
                        response.error().message());
  }

  absl::Status GiveUp(const grpc::Status& status) {
    absl::Status why = status.ok() ? absl::UnavailableError("the server ended the stream too early")
                                   : ToStatus(status);
    for (const auto& [index, pending] : pending_) Give({index, why});
    return why;
  }

  v1::VisionEncoder::Stub& stub_;
  const std::shared_ptr<Sharing> sharing_;  // may be null
  const RetryPolicy retry_;
  const std::function<std::optional<Image>()>& next_;
  const EncodeOptions& options_;
  const size_t in_flight_;
  const std::function<void(ManyResult)>& sink_;
  Attempts stream_attempts_;
  uint64_t max_bytes_ = UINT64_MAX;  // of an image
  std::mutex sink_mutex_;

  std::mutex mutex_;  // of what follows while a reader runs
  std::condition_variable changed_;
  std::map<size_t, Pending> pending_;  // by index
  size_t next_index_ = 0;              // the writer's alone
  bool source_empty_ = false;
  bool reading_ = false;
  absl::Time last_reply_;
};

}  // namespace

absl::Status RunEncodeMany(v1::VisionEncoder::Stub& stub, const std::shared_ptr<Sharing>& sharing,
                           const RetryPolicy& retry,
                           const std::function<std::optional<Image>()>& next,
                           const EncodeOptions& options, int in_flight,
                           const std::function<void(ManyResult)>& sink) {
  return ManyCall(stub, sharing, retry, next, options, static_cast<size_t>(in_flight), sink).Run();
}

}  // namespace deepencoder::client
