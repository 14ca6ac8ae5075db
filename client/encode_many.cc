// Many images over one stream, which is opened again if it breaks. The caller's thread asks the source; others
// write, read, and watch the time, none of which the others hold up.
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/call_metadata.h"
#include "client/client_impl.h"
#include "client/retry.h"
#include "client/wire.h"

namespace deepencoder::client {
namespace {

constexpr absl::Duration kLongestWait = absl::Hours(1);  // for what is notified

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
    absl::Status status;
    std::thread streams([this, &status] { status = RunStreams(); });
    Feed();
    streams.join();
    return status;
  }

 private:
  bool finished() const { return source_empty_ && pending_.empty(); }

  // ---------------------------------------------------------------- the caller's thread: the source

  // It may read a file or wait for others: meanwhile images are sent and answered.
  void Feed() {
    while (WaitForRoom()) {
      std::optional<Image> image = next_();
      if (image) {
        Add(next_index_++, *std::move(image));
        continue;
      }
      const std::lock_guard lock(mutex_);
      source_empty_ = true;
      changed_.notify_all();
      return;
    }
  }

  // False if no more images are taken.
  bool WaitForRoom() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !given_up_.ok() || pending_.size() < in_flight_; });
    return given_up_.ok();
  }

  void Add(size_t index, Image image) {
    // It would be refused, after all its bytes.
    if (SizeOf(image) > max_bytes_) return Give({index, TooLarge(SizeOf(image))});
    auto request = std::make_shared<v1::EncodeImageRequest>(ToRequest(std::move(image), options_));
    request->set_id(std::to_string(index));
    std::optional<SharedPool::Block> block;
    if (sharing_ != nullptr) block = sharing_->Place(*request);
    {
      const std::lock_guard lock(mutex_);
      if (given_up_.ok()) {
        pending_.emplace(index, Pending{std::move(request), std::move(block), Attempts(retry_)});
        changed_.notify_all();
        return;
      }
    }
    Give({index, given_up_});  // which stays as it is
  }

  // ---------------------------------------------------------------- the streams, one after another

  absl::Status RunStreams() {
    while (WaitForWork()) {
      const grpc::Status status = RunStream();
      if (!HasWork()) continue;  // it ended while the source waited, which costs no attempt
      // The stream ended although images are left: because of one that should not have been sent?
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && FailTooLarge()) continue;
      const grpc::StatusCode code =
          status.ok() ? grpc::StatusCode::UNAVAILABLE : status.error_code();
      const auto delay =
          stream_attempts_.DelayAfter(code, RetryDelayOf(status), absl::Now() + options_.timeout);
      if (!delay) return GiveUp(status);
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(*delay));
    }
    return absl::OkStatus();
  }

  // False if all is answered.
  bool WaitForWork() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return source_empty_ || !pending_.empty(); });
    return !pending_.empty();
  }

  bool HasWork() {
    const std::lock_guard lock(mutex_);
    return !pending_.empty();
  }

  static uint64_t SizeOf(const Image& image) {
    return image.encoded.empty() ? image.rgb.size() : image.encoded.size();
  }

  static uint64_t SizeOf(const v1::EncodeImageRequest& request) {
    return request.has_raw() ? request.raw().rgb().size() : request.encoded().size();
  }

  absl::Status TooLarge(uint64_t bytes) const {
    return absl::ResourceExhaustedError(
        absl::StrCat("the image has ", bytes, " bytes; the server's limit is ", max_bytes_.load()));
  }

  // Answers the images that are over a limit which was not known when they were sent (the server did
  // not answer then, or has another now): gRPC ends the whole stream for a message far over it. False
  // if there is none.
  bool FailTooLarge() {
    AskLimit();
    std::vector<std::pair<size_t, uint64_t>> too_large;  // index and bytes
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [index, pending] : pending_) {
        const uint64_t bytes = SizeOf(*pending.request);
        if (bytes > max_bytes_) too_large.emplace_back(index, bytes);
      }
    }
    for (const auto& [index, bytes] : too_large) Answer({index, TooLarge(bytes)});
    return !too_large.empty();
  }

  // A server that does not answer is met again by the stream, which says so.
  void AskLimit() {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
    v1::ModelInfo info;
    if (!stub_.GetModelInfo(&context, v1::GetModelInfoRequest(), &info).ok()) return;
    if (info.limits().max_image_bytes() != 0) max_bytes_ = info.limits().max_image_bytes();
  }

  // The reader gives what the server answered, the others what was not sent or not answered.
  void Give(ManyResult result) {
    const std::lock_guard lock(sink_mutex_);
    sink_(std::move(result));
  }

  // Its place is given away only after the sink has it, so that results do not pile up.
  void Answer(ManyResult result) {
    const size_t index = result.index;
    Give(std::move(result));
    const std::lock_guard lock(mutex_);
    pending_.erase(index);
    changed_.notify_all();
  }

  // One stream, from its opening to its status.
  grpc::Status RunStream() {
    grpc::ClientContext context;
    AddMetadata(options_, context);
    const std::unique_ptr<Stream> stream = stub_.EncodeImages(&context);
    {
      const std::lock_guard lock(mutex_);
      reading_ = true;
      timed_out_ = false;
      waiting_since_ = absl::Now();
      for (auto& [index, pending] : pending_) pending.sent = false;
    }
    std::thread reader([this, &stream] { ReadAll(*stream); });
    std::thread watch([this, &context] { Watch(context); });
    WriteAll(*stream);
    reader.join();
    watch.join();
    grpc::Status status = stream->Finish();
    const std::lock_guard lock(mutex_);
    for (auto& [index, pending] : pending_) {
      if (pending.sent && pending.block) LeaveBlock(pending);
    }
    if (timed_out_) return {grpc::StatusCode::DEADLINE_EXCEEDED, "no reply within the timeout"};
    return status;
  }

  // Sends until all is answered or the stream has ended. A write waits for as long as the server does not read.
  void WriteAll(Stream& stream) {
    while (const auto request = NextToSend()) {
      if (!stream.Write(*request)) return;
    }
    stream.WritesDone();
  }

  // Waits for it; null if there will be none on this stream.
  std::shared_ptr<const v1::EncodeImageRequest> NextToSend() {
    std::unique_lock lock(mutex_);
    while (reading_ && !finished()) {
      if (auto request = TakeDue()) return request;
      changed_.wait_for(lock, absl::ToChronoNanoseconds(NextDue() - absl::Now()));
    }
    waiting_since_ = absl::Now();
    return nullptr;
  }

  // A new image, or one that was sent before and whose time has come again; null if there is none.
  std::shared_ptr<const v1::EncodeImageRequest> TakeDue() {
    for (auto& [index, pending] : pending_) {
      if (pending.sent || pending.not_before > absl::Now()) continue;
      // The time without replies counts from when there is something to reply to.
      if (!AnySent()) waiting_since_ = absl::Now();
      pending.sent = true;
      return pending.request;
    }
    return nullptr;
  }

  bool AnySent() const {
    return std::any_of(pending_.begin(), pending_.end(),
                       [](const auto& entry) { return entry.second.sent; });
  }

  absl::Time NextDue() const {
    absl::Time due = absl::Now() + kLongestWait;
    for (const auto& [index, pending] : pending_) {
      if (!pending.sent) due = std::min(due, pending.not_before);
    }
    return due;
  }

  // Ends the stream of a server that owes a reply, or the stream's end, for too long. The sink's time is not the
  // server's, whose replies wait meanwhile.
  void Watch(grpc::ClientContext& context) {
    std::unique_lock lock(mutex_);
    while (reading_) {
      const bool server_owes = !in_sink_ && (AnySent() || finished());
      // What it owes from later on is due after that time too.
      const absl::Time due = (server_owes ? waiting_since_ : absl::Now()) + options_.timeout;
      if (due <= absl::Now()) {
        timed_out_ = true;
        context.TryCancel();
        return;
      }
      changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(due - absl::Now(), kLongestWait)));
    }
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
      waiting_since_ = absl::Now();
      stream_attempts_.Reset();
      pending = &at->second;
      if (response.has_error() &&
          (SendWhole(*pending, response.error()) || RetryLater(*pending, response.error()))) {
        changed_.notify_all();
        return;
      }
      in_sink_ = true;
    }
    Answer({index, ResultOf(*pending, std::move(response))});
    const std::lock_guard lock(mutex_);
    in_sink_ = false;
    waiting_since_ = absl::Now();
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

  // The server, which has not answered, may still write there: neither another image nor this one's next
  // attempt uses the block.
  void LeaveBlock(Pending& pending) {
    pending.block->Abandon();
    auto again = std::make_shared<v1::EncodeImageRequest>(*pending.request);
    Sharing::TakeBack(*again, *pending.block);
    pending.block = sharing_->Place(*again);
    pending.request = std::move(again);
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
    std::vector<size_t> left;
    {
      const std::lock_guard lock(mutex_);
      given_up_ = why;
      for (const auto& [index, pending] : pending_) left.push_back(index);
      changed_.notify_all();
    }
    for (const size_t index : left) Give({index, why});
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
  std::atomic<uint64_t> max_bytes_ = UINT64_MAX;  // of an image
  size_t next_index_ = 0;                         // the caller's thread alone
  std::mutex sink_mutex_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<size_t, Pending> pending_;  // by index
  bool source_empty_ = false;
  absl::Status given_up_;  // why no more images are taken
  bool reading_ = false, timed_out_ = false;
  bool in_sink_ = false;      // the reader
  absl::Time waiting_since_;  // for the server
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
