#include <gmock/gmock.h>
#include <unistd.h>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/server/rpc/rpc_fixture.h"

namespace deepencoder {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthServiceTest : public testing::Test {
 protected:
  grpc::Status Check(const std::string& service) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    return stub_->Check(&context, request, &response_);
  }

  RpcServer server_;
  std::unique_ptr<grpc::health::v1::Health::Stub> stub_ =
      grpc::health::v1::Health::NewStub(server_.channel);
  HealthCheckResponse response_;
};

TEST_F(HealthServiceTest, NotServingUntilTold) {
  for (const bool serving : {false, true, false}) {
    if (serving || response_.status() != HealthCheckResponse::UNKNOWN) {
      server_.health.SetServing(serving);
    }
    for (const char* service : {"", "a.Service"}) {
      ASSERT_TRUE(Check(service).ok());
      EXPECT_EQ(response_.status(),
                serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
    }
  }
}

TEST_F(HealthServiceTest, UnknownServiceIsNotFound) {
  EXPECT_EQ(Check("another.Service").error_code(), grpc::NOT_FOUND);
}

TEST_F(HealthServiceTest, WatchHearsEachChange) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service("a.Service");
  const auto watch = stub_->Watch(&context, request);
  ASSERT_TRUE(watch->Read(&response_));
  EXPECT_EQ(response_.status(), HealthCheckResponse::NOT_SERVING);
  for (const bool serving : {true, false, true}) {
    server_.health.SetServing(serving);
    ASSERT_TRUE(watch->Read(&response_));
    EXPECT_EQ(response_.status(),
              serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  }
  server_.health.Close();
  EXPECT_FALSE(watch->Read(&response_));
  EXPECT_EQ(watch->Finish().error_code(), grpc::UNAVAILABLE);
}

TEST_F(HealthServiceTest, WatchOfAnUnknownServiceSaysSoAndStaysOpen) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service("another.Service");
  const auto watch = stub_->Watch(&context, request);
  ASSERT_TRUE(watch->Read(&response_));
  EXPECT_EQ(response_.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  EXPECT_FALSE(watch->Read(&response_));
  EXPECT_EQ(watch->Finish().error_code(), grpc::CANCELLED);
}

class HealthWatchersTest : public testing::Test {
 protected:
  using Stub = grpc::health::v1::Health::Stub;

  ~HealthWatchersTest() override {
    health_->Close();
    server_->Shutdown(absl::InfinitePast());
  }

  void Start(const WatchLimits& limits) {
    health_ = std::make_unique<HealthService>(std::vector<std::string>{"a.Service"}, limits);
    server_ = *GrpcServer::Start({.listen = {"127.0.0.1:0", "unix:" + socket_}}, {health_.get()});
  }

  // The clients of each address are another client to the server.
  std::unique_ptr<Stub> NewStub(size_t address) const {
    return grpc::health::v1::Health::NewStub(
        grpc::CreateChannel(server_->addresses()[address], grpc::InsecureChannelCredentials()));
  }

  // One Watch call that has heard something.
  struct OpenWatch {
    explicit OpenWatch(Stub& stub) : reader(stub.Watch(&context, HealthCheckRequest())) {
      HealthCheckResponse response;
      EXPECT_TRUE(reader->Read(&response));
    }
    ~OpenWatch() {
      context.TryCancel();
      reader->Finish();
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader;
  };

  // Why a further Watch is refused; empty if it is not.
  static std::string Refusal(Stub& stub) {
    grpc::ClientContext context;
    HealthCheckResponse response;
    const auto watch = stub.Watch(&context, HealthCheckRequest());
    const bool heard = watch->Read(&response);
    if (heard) context.TryCancel();
    const grpc::Status status = watch->Finish();
    if (heard) return "";
    EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
    return status.error_message();
  }

  const std::string socket_ = testing::TempDir() + "/health." + std::to_string(getpid());
  std::unique_ptr<HealthService> health_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(HealthWatchersTest, BeyondTheLimitAWatchIsRefusedUntilOneEnds) {
  Start({.all = 2});
  const auto stub = NewStub(0), other = NewStub(1);
  auto first = std::make_unique<OpenWatch>(*stub);
  OpenWatch second(*other);
  for (Stub* client : {stub.get(), other.get()}) {
    EXPECT_EQ(Refusal(*client), "too many Watch calls at a time (limit: 2)");
  }
  grpc::ClientContext context;  // who only asks is answered
  HealthCheckResponse response;
  EXPECT_TRUE(stub->Check(&context, HealthCheckRequest(), &response).ok());
  first.reset();
  EXPECT_TRUE(Eventually([&] { return Refusal(*stub).empty(); }));
  health_->SetServing(true);
  EXPECT_TRUE(second.reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
}

TEST_F(HealthWatchersTest, NoClientTakesAllPlaces) {
  Start({.all = 4, .of_a_client = 2});
  const auto stub = NewStub(0), same_host = NewStub(0), other = NewStub(1);
  auto first = std::make_unique<OpenWatch>(*stub);
  const OpenWatch second(*same_host);
  for (Stub* client : {stub.get(), same_host.get()}) {
    EXPECT_EQ(Refusal(*client), "too many Watch calls of one client at a time (limit: 2)");
  }
  const OpenWatch third(*other);
  first.reset();
  EXPECT_TRUE(Eventually([&] { return Refusal(*stub).empty(); }));
}

TEST_F(HealthServiceTest, ManyWatchersComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    const auto watch = stub_->Watch(&context, HealthCheckRequest());
    ASSERT_TRUE(watch->Read(&response_));
    server_.health.SetServing(i % 2 == 0);
    if (i % 3 != 0) context.TryCancel();
    while (i % 3 != 0 && watch->Read(&response_)) {
    }
    if (i % 3 == 0) {
      ASSERT_TRUE(watch->Read(&response_));
      context.TryCancel();
    }
    watch->Finish();
  }
}

}  // namespace
}  // namespace deepencoder
