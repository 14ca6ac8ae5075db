// Where an image lies when it is sent again after a call that broke: the server may still write the first reply.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"
#include "deepencoder/v1/shared_memory.grpc.pb.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "tests/client/client_fixture.h"

namespace deepencoder::client {
namespace {

// Breaks the first call in a way that is no answer of the server's; refuses the image of the next.
class BreakingServer final : public v1::VisionEncoder::Service {
 public:
  grpc::Status GetModelInfo(grpc::ServerContext* /*context*/,
                            const v1::GetModelInfoRequest* /*request*/,
                            v1::ModelInfo* info) override {
    *info = TinyModel();
    return grpc::Status::OK;
  }

  grpc::Status EncodeImage(grpc::ServerContext* /*context*/, const v1::EncodeImageRequest* request,
                           v1::EncodeImageResponse* /*response*/) override {
    if (Seen(*request) == 1) return {grpc::StatusCode::UNAVAILABLE, "broken"};
    return {grpc::StatusCode::INVALID_ARGUMENT, "no image"};
  }

  grpc::Status EncodeImages(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::EncodeImageResponse, v1::EncodeImageRequest>* stream) override {
    v1::EncodeImageRequest request;
    while (stream->Read(&request)) {
      if (Seen(request) == 1) return {grpc::StatusCode::UNAVAILABLE, "broken"};
      v1::EncodeImageResponse response;
      response.set_id(request.id());
      response.mutable_error()->set_code(grpc::StatusCode::INVALID_ARGUMENT);
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

  std::vector<v1::EncodeImageRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  size_t Seen(const v1::EncodeImageRequest& request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    return requests_.size();
  }

  std::mutex mutex_;
  std::vector<v1::EncodeImageRequest> requests_;
};

class Registry final : public v1::SharedMemory::Service {
 public:
  grpc::Status RegisterRegion(grpc::ServerContext* /*context*/,
                              const v1::RegisterRegionRequest* /*request*/,
                              v1::RegisterRegionResponse* response) override {
    response->set_handle("handle");
    return grpc::Status::OK;
  }
};

class SharedRetryTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address =
        "unix:" + testing::TempDir() + "shared_retry_test." + std::to_string(getpid()) + ".sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&encoder_);
    builder.RegisterService(&registry_);
    server_ = builder.BuildAndStart();
    client_ = *Client::Create(address, Impatient());
    const absl::Status status = client_->ShareMemory(4 << 20);  // room for both attempts
    ASSERT_TRUE(status.ok()) << status;
  }

  void ExpectTheSecondElsewhere() {
    const std::vector<v1::EncodeImageRequest> requests = encoder_.requests();
    ASSERT_EQ(requests.size(), 2);
    ASSERT_TRUE(requests[0].has_reply_range());
    ASSERT_TRUE(requests[1].has_reply_range());
    EXPECT_NE(requests[0].reply_range().offset(), requests[1].reply_range().offset());
    EXPECT_NE(requests[0].encoded_range().offset(), requests[1].encoded_range().offset());
    EXPECT_EQ(requests[0].encoded_range().size(), requests[1].encoded_range().size());
  }

  BreakingServer encoder_;
  Registry registry_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(SharedRetryTest, OfOneImageLiesElsewhere) {
  EXPECT_EQ(client_->Encode(SmallImage(), Tiny()).status().code(),
            absl::StatusCode::kInvalidArgument);
  ExpectTheSecondElsewhere();
}

TEST_F(SharedRetryTest, OverAStreamLiesElsewhere) {
  bool given = false;
  std::vector<absl::StatusCode> codes;
  const absl::Status status = client_->EncodeMany(
      [&given]() -> std::optional<Image> {
        if (std::exchange(given, true)) return std::nullopt;
        return SmallImage();
      },
      Tiny(), 1,
      [&codes](const ManyResult& result) { codes.push_back(result.embeddings.status().code()); });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(codes, testing::ElementsAre(absl::StatusCode::kInvalidArgument));
  ExpectTheSecondElsewhere();
}

}  // namespace
}  // namespace deepencoder::client
