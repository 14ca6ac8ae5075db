// Who may operate the server: a credential of its own, and TLS, on --admin-listen.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <optional>

#include "client/channel.h"
#include "deepencoder/v1/admin.grpc.pb.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "tests/integration/server_fixture.h"
#include "tests/server/security/test_certificates.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kCaller[] = "token-of-a-caller-of-encoding";
constexpr char kOperator[] = "token-of-one-who-operates";
constexpr char kNext[] = "token-that-comes-after-it";

std::string Folder(const std::string& name) {
  std::string folder = WorkFolder() + "/" + name;
  std::filesystem::create_directories(folder);
  return folder;
}

std::string TokenFile(const std::string& name, const std::string& lines) {
  const std::string path = WorkFolder() + "/" + name;
  WriteFile(path, lines);
  return path;
}

std::vector<std::string> WithTokens(const std::string& admin, const std::string& admin_tokens) {
  return {"--modes=tiny", "--no-warm-up",
          "--token-file=" + TokenFile("callers", std::string("web:") + kCaller + "\n"),
          "--admin-listen=" + admin, "--admin-token-file=" + admin_tokens};
}

// Of a folder that is not there: whoever is let in hears that, after no work.
grpc::Status Ask(const std::string& address, const std::string& token,
                 const std::optional<client::TlsOptions>& tls = std::nullopt) {
  client::ClientOptions options;
  options.token = token;
  options.tls = tls;
  const auto channel = client::OpenChannel(address, options);
  EXPECT_TRUE(channel.ok()) << channel.status();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::ReloadModelRequest request;
  request.set_model("/no/such/folder");
  v1::ReloadModelResponse response;
  return v1::Admin::NewStub(*channel)->ReloadModel(&context, request, &response);
}

void ExpectRefused(const grpc::Status& status, const std::string& why) {
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr(why));
  EXPECT_THAT(status.error_message(), Not(HasSubstr("folder")));
}

void ExpectLetIn(const grpc::Status& status) {
  EXPECT_THAT(status.error_message(), HasSubstr("/no/such/folder"));
}

TEST(AdminAccessTest, OperatorsHaveTokensOfTheirOwn) {
  const std::string tokens =
      TokenFile("operators", std::string("ops:") + kOperator + "\nops:" + kNext + "\n");
  for (const std::string& admin :
       {std::string("127.0.0.1:0"), "unix:" + WorkFolder() + "/own.admin"}) {
    RunningServer server("own", WithTokens(admin, tokens));
    ASSERT_TRUE(server.ready()) << server.process().Stderr();
    const std::string address = server.address("admin");
    ExpectRefused(Ask(address, ""), "no 'authorization' metadata");
    ExpectRefused(Ask(address, kCaller), "the bearer token is not valid");
    ExpectRefused(Ask(address, std::string(kOperator) + "x"), "the bearer token is not valid");
    ExpectLetIn(Ask(address, kOperator));
    ExpectLetIn(Ask(address, kNext));
    EXPECT_THAT(server.process().Stderr(), HasSubstr("by=token:ops"));
    // Nor does an operator's open what callers use.
    client::ClientOptions options;
    options.token = kOperator;
    const auto client = client::Client::Create(server.address("grpc"), options);
    EXPECT_EQ((*client)->Info().status().code(), absl::StatusCode::kUnauthenticated);
  }
}

TEST(AdminAccessTest, TokensAreRotatedWithoutARestart) {
  const std::string tokens = TokenFile("rotated", std::string("ops:") + kOperator + "\n");
  RunningServer server("rotated", WithTokens("127.0.0.1:0", tokens));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::string address = server.address("admin");
  ExpectLetIn(Ask(address, kOperator));
  WriteFile(tokens, std::string("ops:") + kNext + "\n");
  EXPECT_TRUE(Eventually(
      [&] { return Ask(address, kOperator).error_code() == grpc::StatusCode::UNAUTHENTICATED; }));
  ExpectLetIn(Ask(address, kNext));
  EXPECT_EQ(
      server.Metrics()["deepencoder_credential_reloads_total{result=\"ok\",what=\"admin_tokens\"}"],
      1);
}

TEST(AdminAccessTest, OtherMachinesReachItOverTlsWithAToken) {
  TestAuthority authority(Folder("off-host"), "authority");
  const CertificateFiles files = authority.Issue("server");
  const std::string tokens = TokenFile("off-host.tokens", std::string("ops:") + kOperator + "\n");
  std::vector<std::string> flags = WithTokens("0.0.0.0:0", tokens);
  flags.insert(flags.end(), {"--tls-cert=" + files.certificate, "--tls-key=" + files.key});
  RunningServer server("off-host", flags);
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::string listen = server.address("admin");
  const std::string address = "127.0.0.1" + listen.substr(listen.rfind(':'));
  client::TlsOptions tls;
  tls.root_certificates = authority.certificate();
  ExpectRefused(Ask(address, "", tls), "no 'authorization' metadata");
  ExpectLetIn(Ask(address, kOperator, tls));
  EXPECT_EQ(Ask(address, kOperator).error_code(), grpc::StatusCode::UNAVAILABLE);  // plain text

  // The whole way, by the client program.
  const std::string file = TokenFile("operator.token", std::string(kOperator) + "\n");
  const std::vector<std::string> reload = {"reload", "--server=" + address,
                                           "--root-certificates=" + authority.certificate()};
  Outcome run = RunClient(reload);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("a bearer token is needed"));
  std::vector<std::string> with = reload;
  with.push_back("--token-file=" + file);
  run = RunClient(with);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(server.process().Stderr(), HasSubstr("reloaded"));
  // A caller's variable is not for operators; theirs is another.
  const auto with_variable = [&](const std::string& name) {
    std::vector<std::string> words = {name + "=" + kOperator, DEEPENCODER_CLIENT_PROGRAM};
    words.insert(words.end(), reload.begin(), reload.end());
    return RunProgram("/usr/bin/env", words, WorkFolder() + "/" + name).status;
  };
  EXPECT_EQ(with_variable("DEEPENCODER_TOKEN"), 1);
  EXPECT_EQ(with_variable("DEEPENCODER_ADMIN_TOKEN"), 0);
}

// Variables that say whom to trust are no reason to speak TLS to a socket of this machine.
TEST(AdminAccessTest, AUnixSocketStaysPlain) {
  TestAuthority authority(Folder("plain"), "authority");
  const CertificateFiles files = authority.Issue("server");
  RunningServer server(
      "plain", {"--modes=tiny", "--no-warm-up", "--tls-cert=" + files.certificate,
                "--tls-key=" + files.key, "--admin-listen=unix:" + WorkFolder() + "/plain.admin"});
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const Outcome run = RunClient({"reload", "--server=" + server.address("admin"),
                                 "--root-certificates=" + authority.certificate()});
  EXPECT_EQ(run.status, 0) << run.err;
}

}  // namespace
}  // namespace deepencoder
