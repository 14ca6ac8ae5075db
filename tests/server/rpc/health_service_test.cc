#include <gmock/gmock.h>

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

TEST(HealthWatchersTest, BeyondTheLimitAWatchIsRefusedUntilOneEnds) {
  HealthService health({"a.Service"}, 2);
  const auto server = *GrpcServer::Start({.listen = {"127.0.0.1:0"}}, {&health});
  const auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(server->addresses().front(), grpc::InsecureChannelCredentials()));
  HealthCheckResponse response;
  const auto refused = [&] {
    grpc::ClientContext context;
    const auto watch = stub->Watch(&context, HealthCheckRequest());
    if (watch->Read(&response)) {
      context.TryCancel();
      return watch->Finish().error_code() == grpc::RESOURCE_EXHAUSTED;
    }
    const grpc::Status status = watch->Finish();
    EXPECT_THAT(status.error_message(), testing::HasSubstr("limit: 2"));
    return status.error_code() == grpc::RESOURCE_EXHAUSTED;
  };
  grpc::ClientContext first_context, second_context;
  const auto first = stub->Watch(&first_context, HealthCheckRequest());
  const auto second = stub->Watch(&second_context, HealthCheckRequest());
  ASSERT_TRUE(first->Read(&response) && second->Read(&response));
  EXPECT_TRUE(refused());
  grpc::ClientContext context;  // who only asks is answered
  EXPECT_TRUE(stub->Check(&context, HealthCheckRequest(), &response).ok());
  first_context.TryCancel();
  first->Finish();
  EXPECT_TRUE(Eventually([&] { return !refused(); }));
  health.SetServing(true);
  EXPECT_TRUE(second->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  health.Close();
  second->Finish();
  server->Shutdown(absl::InfinitePast());
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
