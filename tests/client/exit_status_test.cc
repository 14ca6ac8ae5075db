// The program's commands against a server that answers every call with one status.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>

#include "client/bench_command.h"
#include "client/commands.h"
#include "deepencoder/v1/admin.grpc.pb.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/work_folder.h"

namespace deepencoder::client {
namespace {

class FailingServer final : public v1::VisionEncoder::Service,
                            public v1::Admin::Service,
                            public grpc::health::v1::Health::Service {
 public:
  grpc::Status GetModelInfo(grpc::ServerContext* /*context*/,
                            const v1::GetModelInfoRequest* /*request*/,
                            v1::ModelInfo* /*info*/) override {
    return Failure();
  }
  grpc::Status EncodeImage(grpc::ServerContext* /*context*/,
                           const v1::EncodeImageRequest* /*request*/,
                           v1::EncodeImageResponse* /*response*/) override {
    return Failure();
  }
  grpc::Status ReloadModel(grpc::ServerContext* /*context*/,
                           const v1::ReloadModelRequest* /*request*/,
                           v1::ReloadModelResponse* /*response*/) override {
    return Failure();
  }
  grpc::Status Check(grpc::ServerContext* /*context*/,
                     const grpc::health::v1::HealthCheckRequest* /*request*/,
                     grpc::health::v1::HealthCheckResponse* /*response*/) override {
    return Failure();
  }

  std::atomic<grpc::StatusCode> code{grpc::StatusCode::UNKNOWN};

 private:
  grpc::Status Failure() const { return {code.load(), "as the test says"}; }
};

class ExitStatusTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address = "unix:" + WorkFolder() + "/exit_status.sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1::VisionEncoder::Service*>(&service_));
    builder.RegisterService(static_cast<v1::Admin::Service*>(&service_));
    builder.RegisterService(static_cast<grpc::health::v1::Health::Service*>(&service_));
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    flag_ = "--server=" + address;
  }

  FailingServer service_;
  std::unique_ptr<grpc::Server> server_;
  std::string flag_;
};

TEST_F(ExitStatusTest, OnlyAServerThatIsNotThereOrSilentIsUnreachable) {
  for (int code = grpc::StatusCode::CANCELLED; code <= grpc::StatusCode::UNAUTHENTICATED; ++code) {
    service_.code = static_cast<grpc::StatusCode>(code);
    const bool silent = service_.code == grpc::StatusCode::UNAVAILABLE ||
                        service_.code == grpc::StatusCode::DEADLINE_EXCEEDED;
    const int expected = silent ? kExitUnreachable : kExitFailed;
    EXPECT_EQ(RunInfo({flag_, "--timeout=1m"}), expected) << code;
    EXPECT_EQ(RunHealth({flag_, "--timeout=1m"}), expected) << code;
    EXPECT_EQ(RunReload({flag_}), expected) << code;
    EXPECT_EQ(RunBench({flag_, "--connect-timeout=1m"}), expected) << code;
  }
}

// Which is not tried again, as UNAVAILABLE would be.
TEST_F(ExitStatusTest, SoIsOneThatDoesNotEncodeInTime) {
  const std::string image = WorkFolder() + "/image.png";
  std::ofstream(image) << "bytes";
  service_.code = grpc::StatusCode::DEADLINE_EXCEEDED;
  EXPECT_EQ(RunEncode({image, flag_, "--connect-timeout=1m"}), kExitUnreachable);
  service_.code = grpc::StatusCode::INVALID_ARGUMENT;
  EXPECT_EQ(RunEncode({image, flag_, "--connect-timeout=1m"}), kExitFailed);
}

}  // namespace
}  // namespace deepencoder::client
