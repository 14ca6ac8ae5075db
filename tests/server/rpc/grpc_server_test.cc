#include "server/rpc/grpc_server.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/server/rpc/rpc_fixture.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

TEST(GrpcServerTest, TakesAFreePortAndAUnixSocket) {
  const std::string path =
      "unix:" + testing::TempDir() + "grpc_server_test." + std::to_string(getpid()) + ".sock";
  Logger logger(LogLevel::kError, LogFormat::kText);
  Metrics metrics;
  VisionEncoderService service(TestContext(&metrics, &logger, 4));
  auto server = GrpcServer::Start({.listen = {"127.0.0.1:0", path}}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_EQ((*server)->addresses().size(), 2);
  EXPECT_THAT((*server)->addresses()[0], testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  EXPECT_EQ((*server)->addresses()[1], path);
  for (const std::string& address : (*server)->addresses()) {
    const auto stub = v1::VisionEncoder::NewStub(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::ModelInfo info;
    EXPECT_THAT(stub->GetModelInfo(&context, {}, &info).error_message(), HasSubstr("starting"))
        << address;
  }
  (*server)->Shutdown(absl::InfinitePast());
}

TEST(GrpcServerTest, APortInUseIsAnError) {
  RpcServer first;
  HealthService health({});
  const auto second = GrpcServer::Start({.listen = {first.address()}}, {&health});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(first.address()));
}

TEST(GrpcServerTest, RefusesWhatIsNoAddress) {
  HealthService health({});
  for (const char* address :
       {"50051", "localhost", "localhost:", ":50051", "127.0.0.1:x", "127.0.0.1:70000", "unix:"}) {
    const auto server = GrpcServer::Start({.listen = {address}}, {&health});
    ASSERT_FALSE(server.ok()) << address;
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

}  // namespace
}  // namespace deepencoder
