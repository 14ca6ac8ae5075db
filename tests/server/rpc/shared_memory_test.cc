// Images and rows of deepencoder.v1 through shared memory, over real sockets.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/rpc/rpc_fixture.h"
#include "tests/server/shared_memory/client_object.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

constexpr size_t kRowBytes = size_t{73} * 1280 * 2;  // of a reply in mode tiny
constexpr size_t kObject = 1 << 20;
constexpr size_t kRowsAt = 64 << 10;

std::string FileOf(const EncodeJob& job) {
  const auto& bytes = std::get<EncodedFile>(job.image).file.bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class SharedMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    server_.Serve();
    shared_stub_ = v1::SharedMemory::NewStub(server_.channel);
  }

  grpc::Status Register(const ClientObject& object, uint64_t size, std::string* handle) {
    v1::RegisterRegionRequest request;
    request.set_key(object.key());
    request.set_size(size);
    return Register(request, handle);
  }
  grpc::Status Register(const v1::RegisterRegionRequest& request, std::string* handle) {
    grpc::ClientContext context;
    v1::RegisterRegionResponse response;
    const grpc::Status status = shared_stub_->RegisterRegion(&context, request, &response);
    *handle = response.handle();
    return status;
  }
  std::string Registered(const ClientObject& object) {
    std::string handle;
    EXPECT_TRUE(Register(object, kObject, &handle).ok());
    return handle;
  }
  std::string Registered(const ClientMemfd& memfd) {
    v1::RegisterRegionRequest request;
    request.set_key(memfd.name());
    request.set_size(kObject);
    request.mutable_memfd()->set_pid(getpid());
    request.mutable_memfd()->set_fd(memfd.fd());
    std::string handle;
    EXPECT_TRUE(Register(request, &handle).ok());
    return handle;
  }
  void Unregister(const std::string& handle) {
    grpc::ClientContext context;
    v1::UnregisterRegionRequest request;
    request.set_handle(handle);
    v1::UnregisterRegionResponse response;
    EXPECT_TRUE(shared_stub_->UnregisterRegion(&context, request, &response).ok());
  }

  static void SetRange(v1::SharedRange& range, const std::string& handle, uint64_t offset,
                       uint64_t size) {
    range.set_handle(handle);
    range.set_offset(offset);
    range.set_size(size);
  }
  // Its file at the region's start, its rows at kRowsAt.
  static v1::EncodeImageRequest Request(const std::string& handle, size_t file_bytes) {
    v1::EncodeImageRequest request = SmallRequest("page");
    SetRange(*request.mutable_encoded_range(), handle, 0, file_bytes);
    SetRange(*request.mutable_reply_range(), handle, kRowsAt, kRowBytes);
    return request;
  }
  grpc::Status Call(const v1::EncodeImageRequest& request) {
    grpc::ClientContext context;
    response_.Clear();
    return server_.stub->EncodeImage(&context, request, &response_);
  }

  RpcServer server_{4, "127.0.0.1:0", nullptr, true};
  std::unique_ptr<v1::SharedMemory::Stub> shared_stub_;
  v1::EncodeImageResponse response_;
};

TEST_F(SharedMemoryTest, FileAndRowsGoThroughIt) {
  const ClientObject object(kObject);
  object.Put(0, "the file");
  const std::string handle = Registered(object);
  object.Unlink();
  std::string seen;
  server_.engine->Play([&seen](const EncodeJob& job) {
    seen = FileOf(job);
    return FilledResult(job, {}, 'r');
  });
  ASSERT_TRUE(Call(Request(handle, 8)).ok());
  EXPECT_EQ(seen, "the file");
  EXPECT_EQ(response_.id(), "page");
  EXPECT_EQ(response_.shape(0), 73);
  EXPECT_EQ(response_.shared_bytes(), kRowBytes);
  EXPECT_TRUE(response_.data().empty());
  EXPECT_EQ(object.Get(kRowsAt, kRowBytes), std::string(kRowBytes, 'r'));
  EXPECT_EQ(object.Get(kRowsAt - 1, 1), std::string(1, '\0'));
  EXPECT_EQ(object.Get(kRowsAt + kRowBytes, 1), std::string(1, '\0'));

  // The same inline.
  ASSERT_TRUE(Call(SmallRequest("page")).ok());
  EXPECT_EQ(response_.data(), object.Get(kRowsAt, kRowBytes));
  EXPECT_EQ(response_.shared_bytes(), 0);
  Unregister(handle);
  // The server may still be about to drop a call whose answer is here.
  EXPECT_TRUE(Eventually([&] { return server_.regions.usage().regions == 0; }));
}

TEST_F(SharedMemoryTest, RowsAreWrittenWhereTheClientWantsThem) {
  const ClientMemfd memfd(kObject);
  memfd.Put(0, "the file");
  const std::string handle = Registered(memfd);
  server_.engine->Play([](const EncodeJob& job) -> absl::StatusOr<EncodeResult> {
    if (job.reply_memory == nullptr) return absl::InternalError("no memory for the rows");
    EncodeResult result = FilledResult(job);
    const auto memory = job.reply_memory->bytes();
    if (memory.size() != result.bytes) return absl::InternalError("memory of another size");
    std::fill(memory.begin(), memory.end(), std::byte{'w'});
    result.data = std::shared_ptr<const std::byte[]>(job.reply_memory, memory.data());
    result.in_reply_memory = true;
    return result;
  });
  ASSERT_TRUE(Call(Request(handle, 8)).ok());
  EXPECT_EQ(response_.shared_bytes(), kRowBytes);
  EXPECT_TRUE(response_.data().empty());
  EXPECT_EQ(memfd.Get(kRowsAt, kRowBytes), std::string(kRowBytes, 'w'));
  EXPECT_EQ(memfd.Get(kRowsAt - 1, 1), std::string(1, '\0'));
  EXPECT_EQ(memfd.Get(kRowsAt + kRowBytes, 1), std::string(1, '\0'));
  EXPECT_EQ(server_.regions.usage().bytes_written, kRowBytes);

  // An engine that has them elsewhere has them copied.
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job, {}, 'c'); });
  ASSERT_TRUE(Call(Request(handle, 8)).ok());
  EXPECT_EQ(response_.shared_bytes(), kRowBytes);
  EXPECT_EQ(memfd.Get(kRowsAt, kRowBytes), std::string(kRowBytes, 'c'));
  EXPECT_EQ(server_.regions.usage().bytes_written, 2 * kRowBytes);
}

TEST_F(SharedMemoryTest, WhatIsNotMappedOrNotAlignedIsNoPlaceForRows) {
  const ClientMemfd memfd(kObject);
  const ClientObject object(kObject);
  for (const std::string& handle : {Registered(memfd), Registered(object)}) {
    memfd.Put(0, "the file");
    object.Put(0, "the file");
    bool given = true;
    server_.engine->Play([&given](const EncodeJob& job) {
      given = job.reply_memory != nullptr;
      return FilledResult(job);
    });
    v1::EncodeImageRequest request = Request(handle, 8);
    request.mutable_reply_range()->set_offset(kRowsAt + 8);
    ASSERT_TRUE(Call(request).ok());
    EXPECT_FALSE(given);
    EXPECT_EQ(response_.shared_bytes(), kRowBytes);
  }
}

TEST_F(SharedMemoryTest, ARegionThatAStuckDeviceMayWriteIsGone) {
  const ClientMemfd memfd(kObject);
  memfd.Put(0, "the file");
  const std::string handle = Registered(memfd);
  grpc::Status status;
  std::thread caller([&] { status = Call(Request(handle, 8)); });
  PuppetEngine::Held held = server_.engine->Take();
  ASSERT_NE(held.job.reply_memory, nullptr);
  held.job.reply_memory->Abandon();
  held.done(absl::InternalError("the device did not answer"));
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::INTERNAL);
  EXPECT_EQ(Call(Request(handle, 8)).error_code(), grpc::NOT_FOUND);
}

TEST_F(SharedMemoryTest, PixelsGoThroughIt) {
  const ClientObject object(kObject);
  object.Put(10, "rgbRGB");
  const std::string handle = Registered(object);
  server_.engine->Play([](const EncodeJob& job) -> absl::StatusOr<EncodeResult> {
    const auto& raw = std::get<RawPixels>(job.image);
    if (raw.width != 2 || raw.height != 1 || std::memcmp(raw.rgb.bytes.data(), "rgbRGB", 6) != 0) {
      return absl::InternalError("other pixels");
    }
    return FilledResult(job);
  });
  v1::EncodeImageRequest request = SmallRequest();
  request.mutable_raw()->set_width(2);
  request.mutable_raw()->set_height(1);
  SetRange(*request.mutable_raw()->mutable_rgb_range(), handle, 10, 6);
  EXPECT_TRUE(Call(request).ok());
  EXPECT_EQ(response_.data().size(), kRowBytes);
}

TEST_F(SharedMemoryTest, StreamImagesGoThroughItAndFailAlone) {
  const ClientObject object(kObject);
  object.Put(0, "the file");
  const std::string handle = Registered(object);
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job, {}, 's'); });
  grpc::ClientContext context;
  const auto stream = server_.stub->EncodeImages(&context);
  std::map<std::string, v1::EncodeImageRequest> requests;
  for (const char* id : {"shared", "inline", "no region", "outside", "too small"}) {
    requests[id] = Request(handle, 8);
  }
  requests["inline"] = SmallRequest();
  requests["no region"].mutable_encoded_range()->set_handle("0123");
  requests["outside"].mutable_reply_range()->set_offset(UINT64_MAX);
  requests["too small"].mutable_reply_range()->set_size(kRowBytes - 1);
  for (auto& [id, request] : requests) {
    request.set_id(id);
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  std::map<std::string, v1::EncodeImageResponse> replies;
  while (stream->Read(&response_)) replies[response_.id()] = response_;
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(replies.size(), 5);
  EXPECT_EQ(replies["shared"].shared_bytes(), kRowBytes);
  EXPECT_EQ(replies["inline"].data().size(), kRowBytes);
  EXPECT_EQ(replies["no region"].error().code(), grpc::NOT_FOUND);
  EXPECT_EQ(replies["outside"].error().code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(replies["too small"].error().code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(object.Get(kRowsAt, kRowBytes), std::string(kRowBytes, 's'));
}

TEST_F(SharedMemoryTest, RangesThatAreNoneAreRefused) {
  const ClientObject object(4 << 20), other(kObject);
  object.Put(0, "the file");
  std::string handle;
  ASSERT_TRUE(Register(object, 3 << 20, &handle).ok());
  ASSERT_TRUE(
      server_.regions.Register({.name = "named", .key = other.key(), .size = kObject}).ok());
  struct Case {
    std::function<void(v1::EncodeImageRequest&)> change;
    grpc::StatusCode code;
    std::string text;
  };
  const std::vector<Case> cases = {
      {[](auto& r) { r.mutable_encoded_range()->set_handle("named"); }, grpc::NOT_FOUND, "named"},
      {[](auto& r) { r.mutable_encoded_range()->set_handle(""); }, grpc::NOT_FOUND, "no shared"},
      {[](auto& r) { r.mutable_reply_range()->set_handle(std::string(5000, '\n')); },
       grpc::NOT_FOUND, "no shared"},
      {[](auto& r) { r.mutable_encoded_range()->set_size(0); }, grpc::INVALID_ARGUMENT, "0 from 0"},
      {[](auto& r) { r.mutable_encoded_range()->set_size((1 << 20) + 1); },
       grpc::RESOURCE_EXHAUSTED, "--max-image-bytes"},
      {[](auto& r) { r.mutable_encoded_range()->set_size(UINT64_MAX); }, grpc::RESOURCE_EXHAUSTED,
       "--max-image-bytes"},
      {[](auto& r) { r.mutable_encoded_range()->set_offset(UINT64_MAX - 7); },
       grpc::INVALID_ARGUMENT, "do not lie in it"},
      {[](auto& r) { r.mutable_encoded_range()->set_offset((3 << 20) - 7); },
       grpc::INVALID_ARGUMENT, "do not lie in it"},
      {[](auto& r) { r.mutable_reply_range()->set_size(0); }, grpc::INVALID_ARGUMENT, "lie in it"},
      {[](auto& r) { r.mutable_reply_range()->set_offset(3 << 20); }, grpc::INVALID_ARGUMENT,
       "lie in it"},
      {[](auto& r) {
         r.mutable_raw()->set_width(2);
         r.mutable_raw()->set_height(1);
         SetRange(*r.mutable_raw()->mutable_rgb_range(), r.reply_range().handle(), 0, 7);
       },
       grpc::INVALID_ARGUMENT, "it has 7"},
      {[](auto& r) {
         r.mutable_raw()->set_width(2);
         r.mutable_raw()->set_height(1);
         r.mutable_raw()->set_rgb("rgbRGB");
         SetRange(*r.mutable_raw()->mutable_rgb_range(), r.reply_range().handle(), 0, 6);
       },
       grpc::INVALID_ARGUMENT, "both rgb and rgb_range"},
  };
  for (const Case& bad : cases) {
    v1::EncodeImageRequest request = Request(handle, 8);
    bad.change(request);
    const grpc::Status status = Call(request);
    EXPECT_EQ(status.error_code(), bad.code) << bad.text << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(bad.text));
  }
  EXPECT_EQ(server_.engine->seen(), 0);
}

TEST_F(SharedMemoryTest, TheRegionMayGoWhileARequestUsesIt) {
  const ClientObject object(kObject);
  object.Put(0, "the file");
  const std::string handle = Registered(object);
  object.Unlink();
  std::thread caller([&] { EXPECT_TRUE(Call(Request(handle, 8)).ok()); });
  PuppetEngine::Held held = server_.engine->Take();
  Unregister(handle);
  EXPECT_EQ(server_.regions.usage().regions, 1);  // the request's
  held.done(FilledResult(held.job, {}, 'u'));
  caller.join();
  EXPECT_EQ(object.Get(kRowsAt, kRowBytes), std::string(kRowBytes, 'u'));
  EXPECT_TRUE(Eventually([&] { return server_.regions.usage().regions == 0; }));
  EXPECT_EQ(Call(Request(handle, 8)).error_code(), grpc::NOT_FOUND);
}

TEST_F(SharedMemoryTest, AnObjectCutWhileARequestUsesItFailsTheRequest) {
  const ClientObject object(kObject);
  object.Put(0, "the file");
  const std::string handle = Registered(object);
  grpc::Status status;
  std::thread caller([&] { status = Call(Request(handle, 8)); });
  PuppetEngine::Held held = server_.engine->Take();
  object.Resize(kRowsAt + 10);
  held.done(FilledResult(held.job));
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("shorter"));
  EXPECT_EQ(object.size(), kRowsAt + 10);
  object.Resize(4);
  EXPECT_EQ(Call(Request(handle, 8)).error_code(), grpc::FAILED_PRECONDITION);
  // The server is as it was.
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  EXPECT_TRUE(Call(SmallRequest()).ok());
}

TEST_F(SharedMemoryTest, AClientThatDiesInTheMiddleTakesItsRegionWithIt) {
  ClientObject object(kObject);
  object.Put(0, "the file");
  const std::string handle = Registered(object);
  grpc::ClientContext context;
  std::thread caller([&] {
    v1::EncodeImageResponse response;
    EXPECT_EQ(server_.stub->EncodeImage(&context, Request(handle, 8), &response).error_code(),
              grpc::CANCELLED);
  });
  PuppetEngine::Held held = server_.engine->Take();
  context.TryCancel();
  caller.join();
  object.Close();
  server_.regions.Sweep();
  EXPECT_FALSE(object.has_name());
  held.done(FilledResult(held.job));
  EXPECT_TRUE(Eventually([&] { return server_.regions.usage().regions == 0; }));
  EXPECT_EQ(server_.regions.ended_with_client(), 1);
}

TEST_F(SharedMemoryTest, TwoClientsDoNotMeet) {
  const ClientObject first(kObject), second(kObject);
  first.Put(0, "file one");
  second.Put(0, "file two");
  const std::string one = Registered(first), two = Registered(second);
  server_.engine->Play(
      [](const EncodeJob& job) { return FilledResult(job, {}, FileOf(job).back()); });
  ASSERT_TRUE(Call(Request(one, 8)).ok());
  ASSERT_TRUE(Call(Request(two, 8)).ok());
  EXPECT_EQ(first.Get(kRowsAt, 1), "e");
  EXPECT_EQ(second.Get(kRowsAt, 1), "o");
  std::string handle;
  EXPECT_EQ(Register(first, kObject, &handle).error_code(), grpc::ALREADY_EXISTS);
  Unregister(one);
  EXPECT_TRUE(Call(Request(two, 8)).ok());
}

TEST(SharedMemoryOffTest, SaysWhichFlagIsMissing) {
  RpcServer server;
  server.Serve();
  grpc::ClientContext register_context, encode_context;
  v1::RegisterRegionResponse registered;
  const grpc::Status refused =
      v1::SharedMemory::NewStub(server.channel)->RegisterRegion(&register_context, {}, &registered);
  EXPECT_EQ(refused.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("--shared-memory"));
  v1::EncodeImageRequest request = SmallRequest();
  request.mutable_reply_range()->set_handle("x");
  v1::EncodeImageResponse response;
  EXPECT_EQ(server.stub->EncodeImage(&encode_context, request, &response).error_code(),
            grpc::UNIMPLEMENTED);
}

TEST(LocalPeerTest, OnlyThisHost) {
  for (const char* peer : {"unix:/run/x.sock", "unix:", "ipv4:127.0.0.1:5", "ipv4:127.1.2.3:5",
                           "ipv6:[::1]:5", "ipv6:%5B::1%5D:5"}) {
    EXPECT_TRUE(IsLocalPeer(peer)) << peer;
  }
  for (const char* peer :
       {"", "ipv4:10.0.0.1:5", "ipv4:128.0.0.1:5", "ipv6:[::2]:5", "ipv6:[2001:db8::1]:5",
        "ipv6:[::1234]:5", "dns:localhost", "127.0.0.1", "xipv4:127.0.0.1:5", "vsock:1:2"}) {
    EXPECT_FALSE(IsLocalPeer(peer)) << peer;
  }
}

}  // namespace
}  // namespace deepencoder
