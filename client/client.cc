#include "client/client.h"

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/call_metadata.h"
#include "client/channel.h"
#include "client/client_impl.h"
#include "client/retry.h"
#include "client/sharing.h"
#include "client/wire.h"

namespace deepencoder::client {
namespace {

constexpr char kEncodeImage[] = "/deepencoder.v1.VisionEncoder/EncodeImage";
// How gRPC's text begins when it has refused a message before the server saw it.
constexpr char kTooLarge[] = "Received message larger than max";

}  // namespace

// ------------------------------------------------------------------ one image, with retries

// Owns itself while a call or a timer is under way: each callback holds it.
class EncodeOperation : public std::enable_shared_from_this<EncodeOperation> {
 public:
  using Ended = std::function<void()>;

  EncodeOperation(EncodeStub* stub, std::shared_ptr<Sharing> sharing, const RetryPolicy& retry,
                  Image image, const EncodeOptions& options, Client::Done done, Ended ended)
      : stub_(stub),
        sharing_(std::move(sharing)),
        attempts_(retry),
        request_(ToRequest(std::move(image), options)),
        options_(options),
        deadline_(absl::Now() + options.timeout),
        done_(std::move(done)),
        ended_(std::move(ended)) {
    if (sharing_ != nullptr) block_ = sharing_->Place(request_);
  }

  void Start() {
    context_ = std::make_unique<grpc::ClientContext>();
    if (deadline_ != absl::InfiniteFuture()) context_->set_deadline(absl::ToChronoTime(deadline_));
    AddMetadata(options_, *context_);
    response_.Clear();
    if (!block_ && image_ == nullptr) image_ = TakeImage(request_);
    const grpc::ByteBuffer message = ToMessage(request_, image_);
    stub_->UnaryCall(
        context_.get(), kEncodeImage, grpc::StubOptions(), &message, &response_,
        [self = shared_from_this()](const grpc::Status& status) { self->OnAnswer(status); });
  }

 private:
  void OnAnswer(const grpc::Status& status) {
    const bool may_be_written = block_ && !IsServersAnswer(*context_, status);
    if (may_be_written) block_->Abandon();
    if (status.ok()) return End(Result());
    if (block_ && Sharing::IsRefusal(status.error_code())) {
      Sharing::TakeBack(request_, *block_);
      sharing_->OnRefusal(status.error_code(), *block_);
      block_.reset();
      return Start();
    }
    const auto delay = attempts_.DelayAfter(status.error_code(), RetryDelayOf(status), deadline_);
    if (!delay) return End(ToStatus(status));
    if (may_be_written) {  // by the attempt that has failed: the next one's reply must not lie there
      Sharing::TakeBack(request_, *block_);
      block_ = sharing_->Place(request_);
    }
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(absl::ToChronoTime(absl::Now() + *delay),
                [self = shared_from_this()](bool /*expired*/) {
                  self->alarm_.reset();  // it holds this callback, and so the operation
                  self->Start();
                });
  }

  absl::StatusOr<Embeddings> Result() {
    if (block_) return Sharing::Collect(request_, *std::move(block_), response_);
    return ToEmbeddings(std::move(response_));
  }

  void End(absl::StatusOr<Embeddings> result) {
    block_.reset();
    sharing_.reset();  // it is the client's, whom nobody waits for after `ended_`
    // The context holds the channel: were it the last to do so, the channel would end in this thread,
    // which is one of its own. After `ended_` nothing of this operation refers to it.
    context_.reset();
    done_(std::move(result));
    ended_();
  }

  EncodeStub* const stub_;
  std::shared_ptr<Sharing> sharing_;  // may be null
  Attempts attempts_;
  v1::EncodeImageRequest request_;            // without the image, once that was taken
  std::shared_ptr<const std::string> image_;  // null: shared
  std::optional<SharedPool::Block> block_;  // where its image and its reply lie, if not in messages
  const EncodeOptions options_;
  const absl::Time deadline_;
  const Client::Done done_;
  const Ended ended_;
  v1::EncodeImageResponse response_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::Alarm> alarm_;
};

// ------------------------------------------------------------------ Client::Impl

Client::Impl::Impl(std::string server, const ClientOptions& client_options,
                   std::shared_ptr<grpc::Channel> opened)
    : target(std::move(server)),
      options(client_options),
      channel(std::move(opened)),
      stub(v1::VisionEncoder::NewStub(channel)),
      encode_stub(channel) {}

Client::Impl::~Impl() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return calls_ == 0; });
}

std::shared_ptr<Sharing> Client::Impl::sharing() const {
  const std::lock_guard lock(mutex_);
  return sharing_;
}

void Client::Impl::set_sharing(std::shared_ptr<Sharing> sharing) {
  const std::lock_guard lock(mutex_);
  sharing_.swap(sharing);  // the old one goes after the lock
}

void Client::Impl::CallStarted() {
  const std::lock_guard lock(mutex_);
  ++calls_;
}

void Client::Impl::CallEnded() {
  const std::lock_guard lock(mutex_);
  if (--calls_ == 0) idle_.notify_all();
}

absl::Status Client::Impl::Explained(const absl::Status& status) const {
  const std::string text(status.message());
  if (status.code() == absl::StatusCode::kUnavailable) {
    return absl::UnavailableError(absl::StrCat(target, ": ", text));
  }
  if (status.code() == absl::StatusCode::kResourceExhausted && text.starts_with(kTooLarge)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, ": the image is over the server's limit (its --max-image-bytes)"));
  }
  return status;
}

// ------------------------------------------------------------------ Client

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const std::string& target,
                                                       const ClientOptions& options) {
  if (options.retry.max_attempts < 1) {
    return absl::InvalidArgumentError("a retry policy needs at least one attempt");
  }
  auto channel = OpenChannel(target, options);
  if (!channel.ok()) return channel.status();
  return std::unique_ptr<Client>(
      new Client(std::make_unique<Impl>(target, options, *std::move(channel))));
}

absl::Status Client::Connect(absl::Duration timeout) {
  if (impl_->channel->WaitForConnected(absl::ToChronoTime(absl::Now() + timeout))) {
    return absl::OkStatus();
  }
  return impl_->Explained(
      absl::UnavailableError(absl::StrCat("no connection within ", absl::FormatDuration(timeout))));
}

absl::Status Client::ShareMemory(uint64_t bytes, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  v1::ModelInfo info;
  const grpc::Status status = impl_->stub->GetModelInfo(&context, v1::GetModelInfoRequest(), &info);
  if (!status.ok()) return impl_->Explained(ToStatus(status));
  Impl* impl = impl_.get();
  auto sharing = Sharing::Start(
      impl->channel, std::move(info), bytes, deadline, [impl] { impl->CallStarted(); },
      [impl] { impl->CallEnded(); });
  if (!sharing.ok()) return impl_->Explained(sharing.status());
  impl_->set_sharing(*std::move(sharing));
  return absl::OkStatus();
}

void Client::EncodeAsync(Image image, const EncodeOptions& options, Done done) {
  if (absl::Status status = CheckMetadata(options); !status.ok()) return done(std::move(status));
  impl_->CallStarted();
  Impl* impl = impl_.get();
  auto explained = [impl, done = std::move(done)](absl::StatusOr<Embeddings> result) {
    if (result.ok()) return done(std::move(result));
    done(impl->Explained(result.status()));
  };
  std::make_shared<EncodeOperation>(&impl->encode_stub, impl->sharing(), impl->options.retry,
                                    std::move(image), options, std::move(explained),
                                    [impl] { impl->CallEnded(); })
      ->Start();
}

std::future<absl::StatusOr<Embeddings>> Client::EncodeFuture(Image image,
                                                             const EncodeOptions& options) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<Embeddings>>>();
  auto future = promise->get_future();
  EncodeAsync(std::move(image), options, [promise](absl::StatusOr<Embeddings> result) {
    promise->set_value(std::move(result));
  });
  return future;
}

absl::StatusOr<Embeddings> Client::Encode(Image image, const EncodeOptions& options) {
  return EncodeFuture(std::move(image), options).get();
}

absl::Status Client::EncodeMany(const std::function<std::optional<Image>()>& next,
                                const EncodeOptions& options, int in_flight,
                                const std::function<void(ManyResult)>& sink) {
  if (in_flight < 1) return absl::InvalidArgumentError("in_flight must be 1 or more");
  if (absl::Status status = CheckMetadata(options); !status.ok()) return status;
  return impl_->Explained(RunEncodeMany(*impl_->stub, impl_->sharing(), impl_->options.retry, next,
                                        options, in_flight, sink));
}

absl::StatusOr<ModelInfo> Client::Info(absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  v1::ModelInfo info;
  const grpc::Status status = impl_->stub->GetModelInfo(&context, v1::GetModelInfoRequest(), &info);
  if (!status.ok()) return impl_->Explained(ToStatus(status));
  return ToModelInfo(info);
}

}  // namespace deepencoder::client
