#include "client/client.h"

#include <grpc/grpc.h>
#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client_impl.h"
#include "client/retry.h"
#include "client/wire.h"

namespace deepencoder::client {
namespace {

constexpr char kRequestIdKey[] = "x-request-id";
// How gRPC's text begins when it has refused a message before the server saw it.
constexpr char kTooLarge[] = "Received message larger than max";

// gRPC 1.51 joins its poller, which may sleep for 10 seconds, when its last object goes: so the library
// is held until the process ends.
void HoldGrpc() {
  [[maybe_unused]] static const bool held = [] {
    grpc_init();
    return true;
  }();
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target) {
  HoldGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // a reply in fp32 with 32 tiles has 20 MB
  arguments.SetMaxSendMessageSize(-1);     // the server says what is too large, and by how much
  // A server that comes back is found soon: gRPC's own delay grows to two minutes, and is shared by all
  // channels of the process to that address.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   5000);  // in fact how long an attempt may take
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetLoadBalancingPolicyName("round_robin");
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

// ------------------------------------------------------------------ one image, with retries

// Owns itself while a call or a timer is under way: each callback holds it.
class EncodeOperation : public std::enable_shared_from_this<EncodeOperation> {
 public:
  using Ended = std::function<void()>;

  EncodeOperation(v1::VisionEncoder::Stub* stub, const RetryPolicy& retry, Image image,
                  const EncodeOptions& options, Client::Done done, Ended ended)
      : stub_(stub),
        attempts_(retry),
        request_(ToRequest(std::move(image), options)),
        request_id_(options.request_id),
        deadline_(absl::Now() + options.timeout),
        done_(std::move(done)),
        ended_(std::move(ended)) {}

  void Start() {
    context_ = std::make_unique<grpc::ClientContext>();
    if (deadline_ != absl::InfiniteFuture()) context_->set_deadline(absl::ToChronoTime(deadline_));
    if (!request_id_.empty()) context_->AddMetadata(kRequestIdKey, request_id_);
    response_.Clear();
    stub_->async()->EncodeImage(
        context_.get(), &request_, &response_,
        [self = shared_from_this()](const grpc::Status& status) { self->OnAnswer(status); });
  }

 private:
  void OnAnswer(const grpc::Status& status) {
    if (status.ok()) return End(ToEmbeddings(std::move(response_)));
    const auto delay = attempts_.DelayAfter(status.error_code(), RetryDelayOf(status), deadline_);
    if (!delay) return End(ToStatus(status));
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(absl::ToChronoTime(absl::Now() + *delay),
                [self = shared_from_this()](bool /*expired*/) {
                  self->alarm_.reset();  // it holds this callback, and so the operation
                  self->Start();
                });
  }

  void End(absl::StatusOr<Embeddings> result) {
    // The context holds the channel: were it the last to do so, the channel would end in this thread,
    // which is one of its own. After `ended_` nothing of this operation refers to it.
    context_.reset();
    done_(std::move(result));
    ended_();
  }

  v1::VisionEncoder::Stub* const stub_;
  Attempts attempts_;
  const v1::EncodeImageRequest request_;
  const std::string request_id_;
  const absl::Time deadline_;
  const Client::Done done_;
  const Ended ended_;
  v1::EncodeImageResponse response_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::Alarm> alarm_;
};

// ------------------------------------------------------------------ Client::Impl

Client::Impl::Impl(std::string server, const ClientOptions& client_options)
    : target(std::move(server)),
      options(client_options),
      channel(MakeChannel(target)),
      stub(v1::VisionEncoder::NewStub(channel)) {}

Client::Impl::~Impl() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return calls_ == 0; });
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
  if (target.empty()) return absl::InvalidArgumentError("the server's address is empty");
  if (options.retry.max_attempts < 1) {
    return absl::InvalidArgumentError("a retry policy needs at least one attempt");
  }
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(target, options)));
}

absl::Status Client::Connect(absl::Duration timeout) {
  if (impl_->channel->WaitForConnected(absl::ToChronoTime(absl::Now() + timeout))) {
    return absl::OkStatus();
  }
  return impl_->Explained(
      absl::UnavailableError(absl::StrCat("no connection within ", absl::FormatDuration(timeout))));
}

void Client::EncodeAsync(Image image, const EncodeOptions& options, Done done) {
  impl_->CallStarted();
  Impl* impl = impl_.get();
  auto explained = [impl, done = std::move(done)](absl::StatusOr<Embeddings> result) {
    if (result.ok()) return done(std::move(result));
    done(impl->Explained(result.status()));
  };
  std::make_shared<EncodeOperation>(impl->stub.get(), impl->options.retry, std::move(image),
                                    options, std::move(explained), [impl] { impl->CallEnded(); })
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
  return impl_->Explained(
      RunEncodeMany(*impl_->stub, impl_->options.retry, next, options, in_flight, sink));
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
