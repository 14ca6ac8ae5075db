// Messages, metadata and images that would take too much: each is refused cleanly, and the server works on.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <fstream>

#include "server/rpc/hold_grpc.h"
#include "tests/call_with_bytes.h"
#include "tests/integration/pressure/pressure_fixture.h"

namespace deepencoder {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

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

// Over a connection of its own, without a token.
grpc::Status CallWithBytes(const RunningServer& server, const std::string& method,
                           const std::string& bytes) {
  HoldGrpc();
  return deepencoder::CallWithBytes(
      grpc::CreateChannel(server.address("grpc"), grpc::InsecureChannelCredentials()), method,
      bytes);
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
