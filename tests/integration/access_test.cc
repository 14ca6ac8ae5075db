// Who gets in: TLS, client certificates, tokens; and how their files are changed while the server runs.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <tuple>

#include "absl/time/clock.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "tests/integration/server_fixture.h"
#include "tests/server/security/test_certificates.h"

namespace deepencoder {
namespace {

using client::TlsOptions;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kToken[] = "correct-horse-battery-staple";
constexpr char kOther[] = "another-token-of-a-client";

std::vector<std::string> Quick(std::vector<std::string> more) {
  more.insert(more.end(), {"--modes=tiny", "--no-warm-up"});
  return more;
}

// What a call without an image says of a server; each time over a new connection.
absl::Status Ask(const std::string& address, const std::optional<TlsOptions>& tls,
                 const std::string& token = "") {
  client::ClientOptions options;
  options.retry.max_attempts = 1;
  options.tls = tls;
  options.token = token;
  const auto client = client::Client::Create(address, options);
  if (!client.ok()) return client.status();
  return (*client)->Info(absl::Seconds(20)).status();
}

std::string Folder(const std::string& name) {
  std::string folder = WorkFolder() + "/" + name;
  std::filesystem::create_directories(folder);
  return folder;
}

TlsOptions Trusting(const TestAuthority& authority) {
  TlsOptions tls;
  tls.root_certificates = authority.certificate();
  return tls;
}

TlsOptions Showing(TlsOptions tls, const CertificateFiles& files) {
  tls.client_certificate = files.certificate;
  tls.client_key = files.key;
  return tls;
}

// ------------------------------------------------------------------ TLS

TEST(TlsTest, OnlyOverTlsAndOnlyForThoseWhoTrust) {
  TestAuthority authority(Folder("tls"), "authority"), stranger(Folder("tls"), "stranger");
  const CertificateFiles files = authority.Issue("server");
  RunningServer server("tls", Quick({"--tls-cert=" + files.certificate, "--tls-key=" + files.key}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::string address = server.address("grpc");
  EXPECT_TRUE(Ask(address, Trusting(authority)).ok()) << Ask(address, Trusting(authority));
  EXPECT_EQ(Ask(address, std::nullopt).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ask(address, Trusting(stranger)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Ask(server.address("unix"), std::nullopt).ok());  // stays on this machine
  EXPECT_NEAR(server.Metrics()["deepencoder_certificate_expiry_seconds"],
              absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) + 2 * 86400, 3600);

  // The whole way with an image, by the client program.
  const auto encode = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> args = {"encode", TestImage("palette.png"), "--server=" + address,
                                     "--mode=tiny", "--connect-timeout=5s"};
    args.insert(args.end(), flags.begin(), flags.end());
    return RunClient(args);
  };
  Outcome run = encode({"--root-certificates=" + authority.certificate()});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(encode({}).status, 3);
  run = RunClient(
      {"health", "--server=" + address, "--root-certificates=" + authority.certificate()});
  EXPECT_EQ(run.out, "SERVING\n") << run.err;
}

// The version that the program openssl and the server agree on; "(NONE)" if on none. Its exit status says whether the
// server closed the connection first, too.
std::string VersionOf(const std::string& address, const std::string& flags) {
  const std::string log = WorkFolder() + "/s_client.log";
  std::ignore = std::system(("openssl s_client -connect " + address + " -alpn h2 " + flags +
                             " </dev/null >" + log + " 2>&1")
                                .c_str());
  const std::string text = FileContents(log), before = "\nNew, ", behind = ", Cipher is ";
  const size_t begin = text.find(before), end = text.find(behind, begin);
  if (end == std::string::npos) return text;
  return text.substr(begin + before.size(), end - begin - before.size());
}

TEST(TlsTest, OldVersionsAreRefused) {
  TestAuthority authority(Folder("versions"), "authority");
  const CertificateFiles files = authority.Issue("server");
  RunningServer server("versions",
                       Quick({"--tls-cert=" + files.certificate, "--tls-key=" + files.key}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::string address = server.address("grpc");
  EXPECT_EQ(VersionOf(address, "-tls1_3"), "TLSv1.3");
  EXPECT_EQ(VersionOf(address, "-tls1_2"), "TLSv1.2");
  for (const char* old : {"-tls1_1", "-tls1"}) {
    EXPECT_EQ(VersionOf(address, std::string(old) + " -cipher ALL:@SECLEVEL=0"), "(NONE)") << old;
  }
}

TEST(TlsTest, ClientsMustShowACertificate) {
  TestAuthority authority(Folder("mtls"), "authority"), clients(Folder("mtls"), "clients");
  const CertificateFiles files = authority.Issue("server");
  RunningServer server("mtls", Quick({"--tls-cert=" + files.certificate, "--tls-key=" + files.key,
                                      "--tls-client-ca=" + clients.certificate()}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::string address = server.address("grpc");
  const TlsOptions none = Trusting(authority);
  EXPECT_TRUE(Ask(address, Showing(none, clients.Issue("somebody"))).ok());
  EXPECT_EQ(Ask(address, none).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ask(address, Showing(none, authority.Issue("impostor"))).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ask(address, Showing(none, clients.Issue("too late", -1))).code(),
            absl::StatusCode::kUnavailable);
}

TEST(TlsTest, CertificatesAreRenewedWithoutARestart) {
  TestAuthority first(Folder("renewal"), "first"), second(Folder("renewal"), "second");
  const CertificateFiles served = {Folder("renewal") + "/served.pem",
                                   Folder("renewal") + "/served.key"};
  Replace(served, first.Issue("server"));
  RunningServer server("renewal",
                       Quick({"--tls-cert=" + served.certificate, "--tls-key=" + served.key}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::string address = server.address("grpc");
  ASSERT_TRUE(Ask(address, Trusting(first)).ok());
  client::ClientOptions options;
  options.tls = Trusting(first);
  const auto before = client::Client::Create(address, options);
  ASSERT_TRUE((*before)->Info().ok());

  // Half a pair, then half a file: the old one stays.
  const CertificateFiles next = second.Issue("server");
  WriteFile(served.certificate, ReadWholeFile(next.certificate));
  EXPECT_TRUE(Eventually([&] {
    return server.process().Stderr().find("not the key of the certificate") != std::string::npos;
  }));
  EXPECT_TRUE(Ask(address, Trusting(first)).ok());
  WriteFile(served.key, ReadWholeFile(next.key).substr(0, 40));
  EXPECT_TRUE(Eventually(
      [&] { return server.process().Stderr().find("no PEM private key") != std::string::npos; }));
  EXPECT_TRUE(Ask(address, Trusting(first)).ok());
  EXPECT_EQ(server.Metrics()["deepencoder_credential_reloads_total{result=\"ok\",what=\"tls\"}"],
            0);

  Replace(served, next);
  EXPECT_TRUE(Eventually([&] { return Ask(address, Trusting(second)).ok(); }));
  EXPECT_EQ(Ask(address, Trusting(first)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE((*before)->Info().ok());  // a connection lives on
  EXPECT_GE(
      server.Metrics()["deepencoder_credential_reloads_total{result=\"failed\",what=\"tls\"}"], 2);
}

// ------------------------------------------------------------------ tokens

class TokenTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    WriteFile(TokenFile(), std::string("web:") + kToken + "\nbatch:" + kOther + "\n");
    server_ = new RunningServer("tokens", Quick({"--token-file=" + TokenFile(), "--reflection"}));
    ASSERT_TRUE(server_->ready()) << server_->process().Stderr();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static std::string TokenFile() { return WorkFolder() + "/tokens.txt"; }

  // A call of any method with any message.
  static grpc::Status Call(grpc::Channel& channel, const std::string& method,
                           const std::vector<std::string>& authorization,
                           const std::string& message = "") {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    for (const std::string& value : authorization) context.AddMetadata("authorization", value);
    grpc::GenericStub stub(
        std::shared_ptr<grpc::ChannelInterface>(&channel, [](grpc::ChannelInterface*) {}));
    grpc::CompletionQueue queue;
    const grpc::Slice slice(message);
    const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }

  static std::shared_ptr<grpc::Channel> Channel(const std::string& what = "grpc") {
    return grpc::CreateChannel(server_->address(what), grpc::InsecureChannelCredentials());
  }

  // Every method that the server itself says it has.
  static std::vector<std::string> Methods() {
    using grpc::reflection::v1alpha::ServerReflectionRequest;
    using grpc::reflection::v1alpha::ServerReflectionResponse;
    const auto stub = grpc::reflection::v1alpha::ServerReflection::NewStub(Channel());
    grpc::ClientContext context;
    context.AddMetadata("authorization", std::string("Bearer ") + kToken);
    const auto stream = stub->ServerReflectionInfo(&context);
    const auto ask = [&stream](const ServerReflectionRequest& request) {
      ServerReflectionResponse response;
      EXPECT_TRUE(stream->Write(request) && stream->Read(&response));
      return response;
    };
    ServerReflectionRequest list;
    list.set_list_services("");
    std::vector<std::string> methods;
    const ServerReflectionResponse listed = ask(list);
    for (const auto& service : listed.list_services_response().service()) {
      ServerReflectionRequest of_service;
      of_service.set_file_containing_symbol(service.name());
      const ServerReflectionResponse files = ask(of_service);
      for (const std::string& bytes : files.file_descriptor_response().file_descriptor_proto()) {
        google::protobuf::FileDescriptorProto file;
        EXPECT_TRUE(file.ParseFromString(bytes));
        for (const auto& described : file.service()) {
          if (file.package() + "." + described.name() != service.name()) continue;
          for (const auto& method : described.method()) {
            methods.push_back("/" + service.name() + "/" + method.name());
          }
        }
      }
    }
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    return methods;
  }

  static RunningServer* server_;
};
RunningServer* TokenTest::server_ = nullptr;

TEST_F(TokenTest, EveryMethodButHealthWantsOne) {
  std::vector<std::string> methods = Methods();
  EXPECT_GE(methods.size(), 14);
  methods.emplace_back("/no.such.Service/Method");
  for (const char* where : {"grpc", "unix"}) {
    const auto channel = Channel(where);
    for (const std::string& method : methods) {
      if (method == "/grpc.health.v1.Health/Watch") continue;  // open too, and without an end
      const grpc::Status status = Call(*channel, method, {});
      if (method == "/grpc.health.v1.Health/Check") {
        EXPECT_TRUE(status.ok()) << status.error_message();
        continue;
      }
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
          << method << " " << status.error_message();
      EXPECT_THAT(status.error_message(), HasSubstr("no 'authorization' metadata"));
    }
  }
  EXPECT_EQ(RunClient({"health", "--server=" + server_->address("grpc")}).out, "SERVING\n");
}

// Names that no service can have, as a client that is none of gRPC's may send them.
TEST_F(TokenTest, OddPathsAreRefused) {
  const auto channel = Channel();
  for (const char* path : {"/", "//", "/x", "x", "///", "/grpc.health.v1.Health"}) {
    const grpc::Status status = Call(*channel, path, {});
    EXPECT_NE(status.error_code(), grpc::StatusCode::OK) << path;
    EXPECT_TRUE(server_->process().running()) << path;
    EXPECT_TRUE(Ask(server_->address("grpc"), std::nullopt, kToken).ok()) << path;
  }
}

// Protobuf itself would write a line of its own for each.
TEST_F(TokenTest, StringsThatAreNoUtf8AreRefusedInAFewLinesOfTheLog) {
  const auto channel = Channel();
  const std::string message = "\x0A\x01\xFF";  // an id
  for (int i = 0; i < 100; ++i) {
    const grpc::Status status = Call(*channel, "/deepencoder.v1.VisionEncoder/EncodeImage",
                                     {std::string("Bearer ") + kToken}, message);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  const std::string log = server_->process().Stderr();
  EXPECT_THAT(log, HasSubstr("Protobuf reports"));
  EXPECT_THAT(log, Not(HasSubstr("libprotobuf")));
}

TEST_F(TokenTest, ErrorsSayWhatIsMissingAndNothingElse) {
  const auto channel = Channel();
  const std::string method = "/deepencoder.v1.VisionEncoder/GetModelInfo";
  const std::string bearer = std::string("Bearer ") + kToken;
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {""}, {"Bearer"}, {"Basic dXNlcjpwYXNz"}, {kToken}, {bearer, bearer}}) {
    const grpc::Status status = Call(*channel, method, wrong);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_THAT(status.error_message(), HasSubstr("expected one 'authorization: Bearer TOKEN'"));
  }
  for (const std::string& wrong :
       {bearer + "x", bearer.substr(0, bearer.size() - 1), std::string("Bearer guess"),
        std::string("Bearer web"), "Bearer  " + std::string(kToken)}) {
    const grpc::Status status = Call(*channel, method, {wrong});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << wrong;
    EXPECT_EQ(status.error_message(), "the bearer token is not valid");
  }
  EXPECT_TRUE(Call(*channel, method, {bearer}).ok());
  EXPECT_TRUE(Call(*channel, method, {std::string("bearer ") + kOther}).ok());
  const auto metrics = server_->Metrics();
  EXPECT_GE(metrics.at("deepencoder_auth_failures_total{reason=\"malformed\"}"), 5);
  EXPECT_GE(metrics.at("deepencoder_auth_failures_total{reason=\"unknown\"}"), 5);
  EXPECT_THAT(server_->process().Stderr(), Not(AnyOf(HasSubstr(kToken), HasSubstr(kOther))));
}

TEST_F(TokenTest, ClientsSendTheirs) {
  const std::string server = "--server=" + server_->address("grpc");
  const std::string file = WorkFolder() + "/client-token";
  const std::vector<std::string> encode = {"encode", TestImage("palette.png"), server,
                                           "--mode=tiny"};
  Outcome run = RunClient(encode);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err + run.out, HasSubstr("a bearer token is needed"));
  WriteFile(file, std::string(kToken) + "\n");
  std::vector<std::string> with = encode;
  with.push_back("--token-file=" + file);
  run = RunClient(with);
  EXPECT_EQ(run.status, 0) << run.err;
  with.push_back(TestImage("small_page.png"));  // over a stream
  run = RunClient(with);
  EXPECT_EQ(run.status, 0) << run.err;
  run = RunClient({"info", server, "--token-file=" + file});
  EXPECT_EQ(run.status, 0) << run.err;
  run = RunClient({"info", "--server=192.0.2.1:50051", "--token-file=" + file});
  EXPECT_EQ(run.status, 2);  // it would leave this machine in plain text
  EXPECT_THAT(run.err, HasSubstr("a token could be read on its way"));
}

TEST_F(TokenTest, TokensAreRotatedWithoutARestart) {
  const std::string path = WorkFolder() + "/rotated.txt";
  WriteFile(path, std::string("web:") + kToken + "\n");
  RunningServer server("rotation", Quick({"--token-file=" + path}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::string address = server.address("grpc");
  EXPECT_TRUE(Ask(address, std::nullopt, kToken).ok());
  EXPECT_EQ(Ask(address, std::nullopt, kOther).code(), absl::StatusCode::kUnauthenticated);
  WriteFile(path, std::string("web:") + kToken + "\nweb:" + kOther + "\n");
  EXPECT_TRUE(Eventually([&] { return Ask(address, std::nullopt, kOther).ok(); }));
  EXPECT_TRUE(Ask(address, std::nullopt, kToken).ok());
  WriteFile(path, std::string("web:") + kOther + "\n");
  EXPECT_TRUE(Eventually([&] {
    return Ask(address, std::nullopt, kToken).code() == absl::StatusCode::kUnauthenticated;
  }));
  WriteFile(path, std::string("web:") + kOther + "\n", 0644);
  EXPECT_TRUE(
      Eventually([&] { return server.process().Stderr().find("chmod 600") != std::string::npos; }));
  EXPECT_TRUE(Ask(address, std::nullopt, kOther).ok());
}

// ------------------------------------------------------------------ starts

TEST(AccessTest, WhatCannotBeUsedIsSaidAtTheStart) {
  const auto start = [](const std::vector<std::string>& flags) {
    RunningServer server("refused", Quick(flags));
    EXPECT_FALSE(server.ready());
    const int status = server.process().Wait();
    return std::to_string(status) + " " + server.process().Stderr();
  };
  EXPECT_THAT(start({"--tls-cert=x"}), HasSubstr("2 deepencoder-server: --tls-cert and --tls-key"));
  EXPECT_THAT(start({"--tls-client-ca=x"}), HasSubstr("--tls-client-ca needs --tls-cert"));
  EXPECT_THAT(start({"--tls-cert=/none.pem", "--tls-key=/none.key"}), HasSubstr("/none.pem"));
  EXPECT_THAT(start({"--token-file=/none"}), HasSubstr("--token-file: /none"));
  const std::string open = WorkFolder() + "/open.txt";
  WriteFile(open, std::string("web:") + kToken, 0644);
  EXPECT_THAT(start({"--token-file=" + open}), HasSubstr("chmod 600"));
}

TEST(AccessTest, AnOpenPortIsWarnedOf) {
  RunningServer server("open", Quick({"--listen=0.0.0.0:0"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  EXPECT_THAT(server.process().Stderr(), HasSubstr("in plain text to other machines"));
  EXPECT_THAT(server.process().Stderr(), HasSubstr("whoever reaches the gRPC port may use it"));
  const std::string port = server.address("grpc").substr(server.address("grpc").rfind(':'));
  EXPECT_TRUE(Ask("127.0.0.1" + port, std::nullopt).ok());
  RunningServer closed("closed", Quick({}));
  EXPECT_THAT(closed.process().Stderr(), Not(HasSubstr("plain text")));
}

// ------------------------------------------------------------------ limits of each client

TEST(ClientLimitsTest, EachTokenHasItsOwn) {
  const std::string path = WorkFolder() + "/limited.txt";
  WriteFile(path, std::string("web:") + kToken + "\nbatch:" + kOther + "\n");
  RunningServer server("limits", Quick({"--token-file=" + path, "--client-images-per-second=2"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto client_of = [&](const char* token, int attempts) {
    client::ClientOptions options;
    options.retry.max_attempts = attempts;
    options.token = token;
    return *client::Client::Create(server.address("grpc"), options);
  };
  client::EncodeOptions tiny;
  tiny.mode = client::Mode::kTiny;
  tiny.timeout = absl::Minutes(5);
  const auto web = client_of(kToken, 1);
  // More at once than any machine encodes in the seconds that they would be allowed in.
  std::vector<std::future<absl::StatusOr<client::Embeddings>>> answers;
  for (int i = 0; i < 40; ++i) answers.push_back(web->EncodeFuture(ReadImage("palette.png"), tiny));
  int refused = 0;
  for (auto& answer : answers) {
    const absl::Status status = answer.get().status();
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("2 images a second"));
  }
  EXPECT_GE(refused, 1);
  EXPECT_LT(refused, 40);
  EXPECT_EQ(server.Metrics()["deepencoder_rejected_total{reason=\"client_rate\"}"], refused);
  // Another token is another client; and who comes back when told to is let in.
  EXPECT_TRUE(client_of(kOther, 1)->Encode(ReadImage("palette.png"), tiny).ok());
  const auto patient = client_of(kToken, 100)->Encode(ReadImage("palette.png"), tiny);
  EXPECT_TRUE(patient.ok()) << patient.status();
}

}  // namespace
}  // namespace deepencoder
