// Clients that take too much: each is refused cleanly, and the server does its work once they stop.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>

#include "absl/time/clock.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/rpc/hold_grpc.h"
#include "tests/integration/server_fixture.h"

namespace deepencoder {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

std::vector<std::string> Quick(std::vector<std::string> more) {
  more.insert(more.end(), {"--modes=tiny,base", "--no-warm-up"});
  return more;
}

client::EncodeOptions Tiny() {
  client::EncodeOptions options;
  options.mode = client::Mode::kTiny;
  options.timeout = absl::Minutes(5);
  return options;
}

// The server still does its work, over a new connection.
absl::Status Works(const RunningServer& server) {
  return server.NewClient()->Encode(ReadImage("palette.png"), Tiny()).status();
}

// A plain connection that says nothing.
class SilentConnection {
 public:
  // `from`: whose address of this machine it comes from, 127.0.0.`from`.
  explicit SilentConnection(const std::string& address, uint32_t from = 1)
      : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~uint32_t{0xFF}) | from);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  SilentConnection(SilentConnection&& other) noexcept : socket_(other.socket_) {
    other.socket_ = -1;
  }
  SilentConnection& operator=(SilentConnection&&) = delete;
  ~SilentConnection() {
    if (socket_ >= 0) close(socket_);
  }

  // The server speaks first over HTTP/2, or closes the connection.
  bool IsLetIn() const {
    char first;
    return recv(socket_, &first, 1, 0) == 1;
  }

  void Send(const std::string& bytes) const {
    EXPECT_EQ(send(socket_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

  // Reads what there is, and answers nothing.
  bool HasEnded() const {
    char some[4096];
    ssize_t read;
    do read = recv(socket_, some, sizeof(some), MSG_DONTWAIT);
    while (read > 0);
    return read == 0 || errno == ECONNRESET;
  }

 private:
  int socket_;
};

std::string Frame(char type, char flags, char stream, const std::string& payload) {
  const auto size = static_cast<char>(payload.size());
  return std::string({0, 0, size, type, flags, 0, 0, 0, stream}) + payload;
}

// What a client sends to begin a call, without a message (RFC 9113, 3.4 and 6; RFC 7541, 6).
std::string BeginningOfCall(const std::string& path) {
  constexpr char kHeaders = 1, kSettings = 4, kEndHeaders = 4;
  const auto text = [](const std::string& value) {
    return static_cast<char>(value.size()) + value;
  };
  const std::string headers = "\x83\x86" +                               // POST, http
                              ("\x04" + text(path)) +                    //
                              ("\x01" + text("localhost")) +             // :authority
                              ("\x0F\x10" + text("application/grpc")) +  // content-type
                              (std::string(1, '\0') + text("te") + text("trailers"));
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "") +
         Frame(kHeaders, kEndHeaders, 1, headers);
}

// "VmHWM" or "VmRSS" of a process, in MiB.
int64_t MemoryOf(pid_t process, const std::string& what) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(what + ":")) return std::stoll(line.substr(what.size() + 1)) / 1024;
  }
  return -1;
}

size_t DescriptorsOf(pid_t process) {
  const std::filesystem::directory_iterator open("/proc/" + std::to_string(process) + "/fd");
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

v1::EncodeImageRequest RequestOf(const std::string& image, v1::Mode mode = v1::MODE_TINY) {
  v1::EncodeImageRequest request;
  request.set_encoded(ReadImage(image).encoded);
  request.set_mode(mode);
  return request;
}

std::unique_ptr<v1::VisionEncoder::Stub> StubOf(const RunningServer& server) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::VisionEncoder::NewStub(grpc::CreateCustomChannel(
      server.address("grpc"), grpc::InsecureChannelCredentials(), arguments));
}

// ------------------------------------------------------------------ messages and metadata

TEST(PressureTest, ACompressedMessageIsRefusedBeforeItIsInflated) {
  // The client deflates in the thread that keeps its connection, for long on a slow machine: no pings
  // meanwhile, and a call first, for a handshake left undone would end the connection.
  RunningServer server("bomb", Quick({"--keepalive=0"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  ASSERT_TRUE(Works(server).ok());
  const int64_t before = MemoryOf(server.process().pid(), "VmHWM");
  v1::EncodeImageRequest bomb;  // a quarter of a MiB on the way
  bomb.set_encoded(std::string(size_t{256} << 20, '\0'));
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::EncodeImageResponse response;
  const auto stub = StubOf(server);
  v1::ModelInfo info;
  grpc::ClientContext first;
  ASSERT_TRUE(stub->GetModelInfo(&first, {}, &info).ok());
  const grpc::Status status = stub->EncodeImage(&context, bomb, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("gzip"));
  EXPECT_LT(MemoryOf(server.process().pid(), "VmHWM"), before + 128);
  EXPECT_TRUE(Works(server).ok()) << Works(server);
}

// A call of `method` with those bytes, without a token.
grpc::Status CallWithBytes(const RunningServer& server, const std::string& method,
                           const std::string& bytes) {
  HoldGrpc();
  grpc::GenericStub stub(
      grpc::CreateChannel(server.address("grpc"), grpc::InsecureChannelCredentials()));
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;
  grpc::ClientContext context;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &reply,
                 [&ended](const grpc::Status& status) { ended.set_value(status); });
  return ended.get_future().get();
}

// Parts of 2 bytes, which are 50 and more once they are parsed: 16 MiB that would be 400 and more.
constexpr int64_t kPartsMiB = 16;
std::string ManyParts(const std::string& part) {
  std::string bytes;
  while (bytes.size() < kPartsMiB << 20) bytes += part;
  return bytes;
}
const std::string kUnknownGroup = "\x7B\x7C";

TEST(PressureTest, WhoHasNoTokenCannotHaveMuchParsed) {
  const std::string tokens = WorkFolder() + "/parts.tokens";
  std::ofstream(tokens) << "probe:a-token-that-nobody-here-has\n";
  std::filesystem::permissions(tokens, std::filesystem::perms::owner_read);
  RunningServer server("probes", Quick({"--token-file=" + tokens}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const int64_t before = MemoryOf(server.process().pid(), "VmHWM");
  for (const std::string method : {"Check", "Watch"}) {
    const grpc::Status status =
        CallWithBytes(server, "/grpc.health.v1.Health/" + method, ManyParts(kUnknownGroup));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("HealthCheckRequest is 8192"));
  }
  EXPECT_LT(MemoryOf(server.process().pid(), "VmHWM"), before + 2 * kPartsMiB + 64);
  EXPECT_TRUE(CallWithBytes(server, "/grpc.health.v1.Health/Check", "").ok());
}

TEST(PressureTest, WhatAMessageWouldBecomeIsCountedBeforeItIsParsed) {
  RunningServer server("parts", Quick({}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  ASSERT_TRUE(Works(server).ok());
  const int64_t before = MemoryOf(server.process().pid(), "VmHWM");
  const std::string empty_input("\x2A\0", 2);
  for (const auto& [method, part] :
       {std::pair{"inference.GRPCInferenceService/ModelInfer", empty_input},
        {"deepencoder.v1.VisionEncoder/EncodeImage", kUnknownGroup}}) {
    const grpc::Status status = CallWithBytes(server, std::string("/") + method, ManyParts(part));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("more than 65536 fields"));
  }
  EXPECT_LT(MemoryOf(server.process().pid(), "VmHWM"), before + 2 * kPartsMiB + 64);
  EXPECT_TRUE(Works(server).ok()) << Works(server);
}

TEST(PressureTest, HugeMetadataIsRefused) {
  RunningServer server("metadata", Quick({"--max-metadata=8KiB"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto stub = StubOf(server);
  for (const size_t size : {size_t{4} << 10, size_t{64} << 10, size_t{1} << 20}) {
    grpc::ClientContext context;
    context.AddMetadata("x-large", std::string(size, 'a'));
    v1::ModelInfo info;
    const grpc::Status status = stub->GetModelInfo(&context, {}, &info);
    if (size < (size_t{8} << 10)) {
      EXPECT_TRUE(status.ok()) << status.error_message();
    } else {
      EXPECT_THAT(status.error_code(),
                  AnyOf(grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::UNAVAILABLE))
          << size << " " << status.error_message();
    }
  }
  EXPECT_TRUE(Works(server).ok()) << Works(server);
}

// ------------------------------------------------------------------ calls

using Stream = grpc::ClientReaderWriter<v1::EncodeImageRequest, v1::EncodeImageResponse>;

// A stream that has been answered, and so is known to the server, and stays open.
class OpenStream {
 public:
  explicit OpenStream(v1::VisionEncoder::Stub* stub) : stream_(stub->EncodeImages(&context_)) {
    v1::EncodeImageResponse response;
    EXPECT_TRUE(stream_->Write(RequestOf("palette.png")) && stream_->Read(&response));
    EXPECT_FALSE(response.has_error()) << response.error().message();
  }
  grpc::Status End() {
    stream_->WritesDone();
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

TEST(PressureTest, SilentStreamsStarveNobody) {
  RunningServer server("silent_streams", Quick({"--max-requests-in-flight=2"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto stub = StubOf(server);
  std::deque<OpenStream> streams;
  for (int i = 0; i < 8; ++i) streams.emplace_back(stub.get());
  EXPECT_EQ(server.Metrics().at("deepencoder_calls_active{method=\"EncodeImages\"}"), 8);
  EXPECT_TRUE(Works(server).ok()) << Works(server);
  for (OpenStream& stream : streams) EXPECT_TRUE(stream.End().ok());
}

// A stream with work for long, which is given up in the end.
class BusyStream {
 public:
  static constexpr int kImages = 8;

  explicit BusyStream(v1::VisionEncoder::Stub* stub) : stream_(stub->EncodeImages(&context_)) {
    for (int i = 0; i < kImages; ++i) {
      EXPECT_TRUE(stream_->Write(RequestOf("page_rgb.jpg", v1::MODE_BASE)));
    }
  }
  ~BusyStream() {
    context_.TryCancel();
    v1::EncodeImageResponse response;
    while (stream_->Read(&response)) {
    }
    stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

TEST(PressureTest, CallsBeyondTheLimitAreTurnedAway) {
  // One view at a time, so that who is given up is soon gone.
  RunningServer server("calls", Quick({"--max-requests-in-flight=2", "--batch-buckets=1"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto stub = StubOf(server);
  std::optional<BusyStream> first(stub.get()), second(stub.get());
  // Of both streams.
  EXPECT_TRUE(Eventually(
      [&] { return server.Metrics().at("deepencoder_in_flight") > BusyStream::kImages; }));

  const auto expect_full = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("limit: 2 requests"));
    EXPECT_FALSE(status.error_details().empty());  // when to come back
  };
  {
    grpc::ClientContext context;
    v1::EncodeImageResponse response;
    expect_full(stub->EncodeImage(&context, RequestOf("palette.png"), &response));
  }
  {
    grpc::ClientContext context;
    const auto stream = stub->EncodeImages(&context);
    v1::EncodeImageResponse response;
    EXPECT_TRUE(stream->Write(RequestOf("palette.png")) && stream->Read(&response));
    EXPECT_EQ(response.error().code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(response.error().message(), HasSubstr("limit: 2 requests"));
    EXPECT_GT(response.error().retry_after(), 0);
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
  {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    const auto kserve = inference::GRPCInferenceService::NewStub(
        grpc::CreateChannel(server.address("grpc"), grpc::InsecureChannelCredentials()));
    expect_full(kserve->ModelInfer(&context, {}, &response));
  }
  EXPECT_EQ(server.Metrics().at("deepencoder_rejected_total{reason=\"requests\"}"), 3);
  {
    grpc::ClientContext context;  // does not encode
    v1::ModelInfo info;
    EXPECT_TRUE(stub->GetModelInfo(&context, {}, &info).ok());
  }
  first.reset();
  EXPECT_TRUE(Eventually([&] { return Works(server).ok(); }));  // beside the second
}

// ------------------------------------------------------------------ connections and descriptors

// Connections that stay until the next flood. Whoever is let in and says nothing is closed after ten seconds, which
// makes room for another: in a flood that takes longer than that, fewer are refused.
class Flood {
 public:
  explicit Flood(const RunningServer& server) : server_(server) {}

  // How many of `count` new connections the server refuses for `reason`.
  double Refused(const std::string& reason, int count, uint32_t from = 1) {
    const std::string refused = "deepencoder_connections_refused_total{reason=\"" + reason + "\"}";
    const double before = server_.Metrics()[refused];
    connections_.clear();
    for (int i = 0; i < count; ++i) connections_.emplace_back(server_.address("grpc"), from);
    for (const SilentConnection& each : connections_) each.IsLetIn();  // once that is decided
    return server_.Metrics()[refused] - before;
  }

 private:
  const RunningServer& server_;
  std::vector<SilentConnection> connections_;
};

TEST(PressureTest, ConnectionsBeyondTheLimitAreClosed) {
  RunningServer server("connections", Quick({"--max-connections=4"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto early = server.NewClient();
  ASSERT_TRUE(early->Info().ok());
  {
    Flood flood(server);
    EXPECT_TRUE(Eventually([&] { return flood.Refused("limit", 40) >= 30; }));
    EXPECT_LE(server.Metrics()["deepencoder_connections"], 4);
    EXPECT_TRUE(early->Info().ok());  // who is in stays in
  }
  EXPECT_TRUE(Eventually([&] { return Works(server).ok(); }));
}

TEST(PressureTest, OneAddressDoesNotTakeAllConnections) {
  RunningServer server("addresses", Quick({"--listen=0.0.0.0:0", "--max-connections=64",
                                           "--max-connections-per-address=4"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  {
    Flood flood(server);
    EXPECT_TRUE(Eventually([&] {
      return flood.Refused("address", 100, 2) >= 96 &&
             server.Metrics()["deepencoder_connections"] == 4;
    }));
    const client::ClientOptions options;
    const std::string port = server.address("grpc").substr(server.address("grpc").rfind(':'));
    const auto other = client::Client::Create("127.0.0.1" + port, options);
    EXPECT_TRUE((*other)->Encode(ReadImage("palette.png"), Tiny()).ok());
  }
  // Once they are gone that address is let in again.
  EXPECT_TRUE(Eventually([&] { return SilentConnection(server.address("grpc"), 2).IsLetIn(); }));
}

// For a program that is started meanwhile: UBSan makes a pipe to learn whether memory can be read, and takes an object
// for one of another type when it gets none.
class WithoutTypeChecks {
 public:
  WithoutTypeChecks() {
    const std::string path = WorkFolder() + "/ubsan.suppressions";
    std::ofstream(path) << "vptr_check:*\n";
    setenv("UBSAN_OPTIONS", (before_ + ":suppressions=" + path).c_str(), 1);
  }
  ~WithoutTypeChecks() { setenv("UBSAN_OPTIONS", before_.c_str(), 1); }
  WithoutTypeChecks(const WithoutTypeChecks&) = delete;
  WithoutTypeChecks& operator=(const WithoutTypeChecks&) = delete;

 private:
  const char* set_ = std::getenv("UBSAN_OPTIONS");
  const std::string before_ = set_ == nullptr ? "" : set_;
};

TEST(PressureTest, WithoutDescriptorsItRefusesAndRecovers) {
  std::optional<WithoutTypeChecks> without_type_checks(std::in_place);
  RunningServer server("descriptors", Quick({}));
  without_type_checks.reset();
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  // Stays: the end of a connection would free a descriptor at any time.
  const auto early = server.NewClient();
  ASSERT_TRUE(early->Encode(ReadImage("palette.png"), Tiny()).ok());
  const pid_t process = server.process().pid();
  rlimit limit{};
  ASSERT_EQ(prlimit(process, RLIMIT_NOFILE, nullptr, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = DescriptorsOf(process) + 3;
  ASSERT_EQ(prlimit(process, RLIMIT_NOFILE, &low, nullptr), 0);
  {
    std::vector<SilentConnection> flood;
    bool refused = false;
    // Once is enough, but for what the server opens for a moment and closes after the flood.
    for (int tries = 0; tries < 5 && !refused; ++tries) {
      for (int i = 0; i < 100; ++i) flood.emplace_back(server.address("grpc"));
      EXPECT_TRUE(Eventually([&] { return DescriptorsOf(process) + 1 >= low.rlim_cur; }));
      refused = !Works(server).ok();
    }
    EXPECT_TRUE(refused);
    EXPECT_TRUE(early->Encode(ReadImage("palette.png"), Tiny()).ok());  // who is in stays in
    EXPECT_TRUE(server.process().running());
  }
  // Their ends free what there is, without the limit being raised.
  EXPECT_TRUE(Eventually([&] { return Works(server).ok(); })) << server.process().Stderr();
  ASSERT_EQ(prlimit(process, RLIMIT_NOFILE, &limit, nullptr), 0);
  EXPECT_GE(server.Metrics()["deepencoder_connections_refused_total{reason=\"descriptors\"}"], 1);
}

// While it is there, programs that are started have so many descriptors at most.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t most) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit low = before_;
    low.rlim_cur = most;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(PressureTest, ConnectionsLeaveDescriptorsForWhatElseIsOpened) {
  std::optional<FewDescriptors> few(400);
  RunningServer server(
      "reserve", Quick({"--decode-threads=2", "--shared-memory", "--shared-memory-regions=150",
                        "--admin-listen=unix:" + WorkFolder() + "/reserve.admin"}));
  few.reset();
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  std::vector<SilentConnection> flood;
  for (int i = 0; i < 150; ++i) flood.emplace_back(server.address("grpc"));
  // 400 less 128 that every server needs, 2 x 3 of decode workers, 150 regions, 32 to the admin service.
  constexpr int kRoom = 400 - 128 - 6 - 150 - 32;
  EXPECT_TRUE(Eventually([&] {
    return server.Metrics()["deepencoder_connections_refused_total{reason=\"limit\"}"] ==
           150 - kRoom;
  }));
  EXPECT_EQ(server.Metrics()["deepencoder_connections"], kRoom);
}

// ------------------------------------------------------------------ slow clients

TEST(PressureTest, RepliesThatAreNotTakenAreGivenUp) {
  RunningServer server("stalled", Quick({"--reply-timeout=1s", "--stream-window=4"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto stub = StubOf(server);
  grpc::ClientContext context;
  const auto stream = stub->EncodeImages(&context);
  // Never read: replies of 1.4 MB in fp32, of which gRPC takes a window's worth.
  v1::EncodeImageRequest request = RequestOf("palette.png", v1::MODE_BASE);
  request.set_dtype(v1::DTYPE_FP32);
  for (int i = 0; i < 4; ++i) stream->Write(request);
  EXPECT_TRUE(
      Eventually([&] { return server.Metrics()["deepencoder_stalled_replies_total"] == 1; }));
  v1::EncodeImageResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_TRUE(Eventually(
      [&] { return server.Metrics()["deepencoder_calls_active{method=\"EncodeImages\"}"] == 0; }));
  EXPECT_THAT(server.process().Stderr(), HasSubstr("bound=--reply-timeout"));
  EXPECT_TRUE(Eventually([&] { return Works(server).ok(); }));  // whose reply has a second, too
}

TEST(PressureTest, ARequestThatIsNeverEndedGoesWithItsConnection) {
  RunningServer server("unsent",
                       Quick({"--max-connection-age=1s", "--max-connection-age-grace=1s"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto stub = StubOf(server);
  const v1::EncodeImageRequest request = RequestOf("palette.png");
  grpc::ClientContext context;
  const auto stream = stub->EncodeImages(&context);
  stream->Write(request);  // fails if the connection's time is over already
  v1::EncodeImageResponse response;
  while (stream->Read(&response)) {  // no WritesDone: only the server can end this
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Eventually(
      [&] { return server.Metrics()["deepencoder_calls_active{method=\"EncodeImages\"}"] == 0; }));
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext next;  // the same channel, over another connection
    next.set_wait_for_ready(true);
    v1::ModelInfo info;
    return stub->GetModelInfo(&next, {}, &info).ok();
  }));
}

TEST(PressureTest, WhoSaysNothingAndWhoVanishesIsGivenUp) {
  RunningServer server("silent", Quick({"--keepalive=1s"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::string active = "deepencoder_calls_active{method=\"EncodeImages\"}";
  const SilentConnection silent(server.address("grpc"));
  const SilentConnection vanished(server.address("grpc"));
  vanished.Send(BeginningOfCall("/deepencoder.v1.VisionEncoder/EncodeImages"));
  EXPECT_TRUE(Eventually([&] { return server.Metrics()[active] == 1; }));
  EXPECT_TRUE(Eventually([&] { return silent.HasEnded(); }));  // ten seconds
  EXPECT_TRUE(
      Eventually([&] { return vanished.HasEnded(); }));  // asked after one, given up 20 later
  EXPECT_TRUE(Eventually([&] { return server.Metrics()[active] == 0; }));
  EXPECT_TRUE(Works(server).ok()) << Works(server);
}

TEST(PressureTest, CallsBeyondTheStreamsOfAConnectionWait) {
  RunningServer server("streams", Quick({"--max-streams=2"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto client = server.NewClient();
  std::vector<std::future<absl::StatusOr<client::Embeddings>>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(client->EncodeFuture(ReadImage("palette.png"), Tiny()));
  }
  for (auto& answer : answers) EXPECT_TRUE(answer.get().ok());
}

// ------------------------------------------------------------------ decoding

TEST(PressureTest, DecodingIsCountedBeforeItsMemoryIsTaken) {
  RunningServer server("decode", Quick({"--max-bytes-in-flight=40MiB"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  ASSERT_TRUE(Works(server).ok());
  const int64_t before = MemoryOf(server.process().pid(), "VmHWM");
  // A header of 12,000 x 12,000 pixels and nothing behind it: 412 MiB if they were made room for.
  std::string bmp("BM\x36\x24\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00", 18);
  bmp +=
      std::string("\xE0\x2E\x00\x00\xE0\x2E\x00\x00\x01\x00\x18\x00", 12) + std::string(24, '\0');
  client::Image image;
  image.encoded = bmp;
  const absl::Status status = server.NewClient()->Encode(image, Tiny()).status();
  EXPECT_THAT(status.code(),
              AnyOf(absl::StatusCode::kResourceExhausted, absl::StatusCode::kInvalidArgument))
      << status;
  EXPECT_LT(MemoryOf(server.process().pid(), "VmHWM"), before + 64);
  // Many that fit alone: the sum is held, those beyond are told when to come back.
  const auto client = server.NewClient();
  std::vector<std::future<absl::StatusOr<client::Embeddings>>> answers;
  for (int i = 0; i < 24; ++i) {
    answers.push_back(client->EncodeFuture(ReadImage("photo_scene.jpg"), Tiny()));
  }
  int good = 0, refused = 0;
  for (auto& answer : answers) {
    const absl::Status one = answer.get().status();
    good += one.ok();
    refused += absl::IsResourceExhausted(one);
  }
  EXPECT_GE(good, 1);
  EXPECT_GE(refused, 1);
  EXPECT_EQ(good + refused, 24);
  EXPECT_TRUE(Eventually([&] { return server.Metrics()["deepencoder_in_flight_bytes"] == 0; }));
  EXPECT_TRUE(Works(server).ok()) << Works(server);
}

}  // namespace
}  // namespace deepencoder
