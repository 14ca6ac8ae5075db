// Inside of Client.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "client/client.h"
#include "client/sharing.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"

namespace deepencoder::client {

// EncodeImage with requests that ToMessage has written.
using EncodeStub = grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::EncodeImageResponse>;

class Client::Impl {
 public:
  Impl(std::string target, const ClientOptions& options, std::shared_ptr<grpc::Channel> channel);
  ~Impl();  // waits for CallEnded of every CallStarted

  void CallStarted();
  void CallEnded();

  // Says what the text of gRPC does not: which server it was, which limit.
  absl::Status Explained(const absl::Status& status) const;

  // Null: nothing is shared.
  std::shared_ptr<Sharing> sharing() const;
  void set_sharing(std::shared_ptr<Sharing> sharing);

  const std::string target;
  const ClientOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::VisionEncoder::Stub> stub;
  EncodeStub encode_stub;

 private:
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  int calls_ = 0;  // under way
  std::shared_ptr<Sharing> sharing_;
};

// EncodeMany.
absl::Status RunEncodeMany(v1::VisionEncoder::Stub& stub, const std::shared_ptr<Sharing>& sharing,
                           const RetryPolicy& retry,
                           const std::function<std::optional<Image>()>& next,
                           const EncodeOptions& options, int in_flight,
                           const std::function<void(ManyResult)>& sink);

}  // namespace deepencoder::client
