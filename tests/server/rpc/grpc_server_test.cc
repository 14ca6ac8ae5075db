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

TEST(GrpcServerTest, ASocketFileInUseIsAnErrorAndAStaleOneIsReplaced) {
  const std::string path =
      testing::TempDir() + "grpc_server_test.stale." + std::to_string(getpid()) + ".sock";
  HealthService health({});
  auto first = GrpcServer::Start({.listen = {"unix:" + path}}, {&health});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = GrpcServer::Start({.listen = {"unix:" + path}}, {&health});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  // As a server leaves it that was killed: a name without a listener.
  const std::string kept = path + ".kept";
  ASSERT_EQ(link(path.c_str(), kept.c_str()), 0);
  (*first)->Shutdown(absl::InfinitePast());
  EXPECT_NE(access(path.c_str(), F_OK), 0);  // removed by its server
  const auto third = GrpcServer::Start({.listen = {"unix:" + kept}}, {&health});
  ASSERT_TRUE(third.ok()) << third.status();
  (*third)->Shutdown(absl::InfinitePast());
}

TEST(GrpcServerTest, APathThatIsTooLongIsAnError) {
  HealthService health({});
  const auto server = GrpcServer::Start({.listen = {"unix:/" + std::string(200, 'x')}}, {&health});
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("at most 107 bytes"));
}

TEST(GrpcServerTest, KnowsWhetherOthersReachIt) {
  HealthService health({});
  for (const auto& [address, exposed] :
       std::vector<std::pair<std::string, bool>>{{"127.0.0.1:0", false}, {"0.0.0.0:0", true}}) {
    const auto server = GrpcServer::Start({.listen = {address}}, {&health});
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ((*server)->exposed(), exposed) << address;
    (*server)->Shutdown(absl::InfinitePast());
  }
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
