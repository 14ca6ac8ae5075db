#include <gmock/gmock.h>

#include <array>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "server/engine/retry_hint.h"
#include "server/rpc/message_buffer.h"
#include "tests/server/rpc/rpc_fixture.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;
using Stream = grpc::ClientReaderWriter<v1::EncodeImageRequest, v1::EncodeImageResponse>;

class EncodeStreamTest : public testing::Test {
 protected:
  static constexpr int kWindow = 4;

  void SetUp() override {
    server_.Serve();
    stream_ = server_.stub->EncodeImages(&context_);
  }

  RpcServer server_{kWindow};
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
  v1::EncodeImageResponse response_;
};

TEST_F(EncodeStreamTest, RepliesComeAsTheyFinishWithTheirIds) {
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(stream_->Write(SmallRequest(id)));
  std::vector<PuppetEngine::Held> held;
  for (int i = 0; i < 3; ++i) held.push_back(server_.engine->Take());
  for (const int i : {2, 0, 1}) {
    held[i].done(FilledResult(held[i].job, {}, static_cast<char>('a' + i)));
    ASSERT_TRUE(stream_->Read(&response_));
    EXPECT_EQ(response_.id(), std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ(response_.shape(0), 73);
    EXPECT_EQ(response_.data()[0], 'a' + i);
  }
  stream_->WritesDone();
  EXPECT_FALSE(stream_->Read(&response_));
  EXPECT_TRUE(stream_->Finish().ok());
  EXPECT_TRUE(Eventually([&] {
    return server_.Metric("deepencoder_requests_total",
                          {{"method", "EncodeImages"}, {"code", "OK"}}) == 1;
  }));
  EXPECT_EQ(server_.Metric("deepencoder_stream_images_total", {{"code", "OK"}}), 3);
}

TEST_F(EncodeStreamTest, OneBadImageFailsAlone) {
  server_.engine->Play([](const EncodeJob& job) -> absl::StatusOr<EncodeResult> {
    if (job.mode == Mode::kBase) return absl::InvalidArgumentError("the file ends early");
    if (job.mode == Mode::kSmall) {
      return WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(500));
    }
    return FilledResult(job);
  });
  std::map<std::string, v1::EncodeImageResponse> replies;
  v1::EncodeImageRequest request = SmallRequest("good");
  ASSERT_TRUE(stream_->Write(request));
  request.set_id("broken");
  request.set_mode(v1::MODE_BASE);
  ASSERT_TRUE(stream_->Write(request));
  request.set_id("full");
  request.set_mode(v1::MODE_SMALL);
  ASSERT_TRUE(stream_->Write(request));
  request.set_id(std::string(300, 'x'));
  ASSERT_TRUE(stream_->Write(request));
  ASSERT_TRUE(stream_->Write(SmallRequest("good too")));
  stream_->WritesDone();
  while (stream_->Read(&response_)) replies[response_.id()] = response_;
  EXPECT_TRUE(stream_->Finish().ok());

  ASSERT_EQ(replies.size(), 5);
  EXPECT_FALSE(replies["good"].has_error());
  EXPECT_FALSE(replies["good too"].has_error());
  EXPECT_EQ(replies["broken"].error().code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(replies["broken"].error().message(), "the file ends early");
  EXPECT_EQ(replies["broken"].error().retry_after(), 0);
  EXPECT_EQ(replies["broken"].shape_size(), 0);
  EXPECT_EQ(replies["full"].error().code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_DOUBLE_EQ(replies["full"].error().retry_after(), 0.5);
  EXPECT_THAT(replies[std::string(256, 'x')].error().message(), HasSubstr("limit is 256"));
}

TEST_F(EncodeStreamTest, ReadsNoMoreThanItsWindow) {
  constexpr int kImages = 12;
  std::thread writer([this] {
    for (int i = 0; i < kImages; ++i) ASSERT_TRUE(stream_->Write(SmallRequest(std::to_string(i))));
    stream_->WritesDone();
  });
  std::deque<PuppetEngine::Held> held;
  for (int i = 0; i < kWindow; ++i) held.push_back(server_.engine->Take());
  std::set<std::string> ids;
  for (int answered = 0; answered < kImages; ++answered) {
    // One in, one out: nothing was read beyond the window.
    EXPECT_LE(server_.engine->seen(), answered + kWindow);
    held.front().done(FilledResult(held.front().job));
    held.pop_front();
    ASSERT_TRUE(stream_->Read(&response_));
    ids.insert(response_.id());
    if (answered + kWindow < kImages) held.push_back(server_.engine->Take());
  }
  writer.join();
  EXPECT_FALSE(stream_->Read(&response_));
  EXPECT_TRUE(stream_->Finish().ok());
  EXPECT_EQ(ids.size(), kImages);
}

// A server with two places for calls that encode.
class StreamPlacesTest : public testing::Test {
 protected:
  void SetUp() override { server_.Serve(); }

  grpc::Status EncodeAlone() {
    grpc::ClientContext context;
    return server_.stub->EncodeImage(&context, SmallRequest(), &response_);
  }

  RpcServer server_{4, "127.0.0.1:0", nullptr, false, 2};
  v1::EncodeImageResponse response_;
};

TEST_F(StreamPlacesTest, SilentStreamsHaveNone) {
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  std::array<grpc::ClientContext, 5> contexts;
  std::vector<std::unique_ptr<Stream>> streams;
  for (grpc::ClientContext& context : contexts) {
    streams.push_back(server_.stub->EncodeImages(&context));
    ASSERT_TRUE(streams.back()->Write(SmallRequest("first")) && streams.back()->Read(&response_));
    EXPECT_FALSE(response_.has_error());
  }
  EXPECT_TRUE(EncodeAlone().ok());
  for (const auto& stream : streams) {
    ASSERT_TRUE(stream->Write(SmallRequest("second")) && stream->Read(&response_));
    EXPECT_FALSE(response_.has_error());
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
}

TEST_F(StreamPlacesTest, AStreamHasOneWhileAnImageIsAtWork) {
  grpc::ClientContext first_context, second_context, third_context;
  const auto first = server_.stub->EncodeImages(&first_context);
  const auto second = server_.stub->EncodeImages(&second_context);
  const auto third = server_.stub->EncodeImages(&third_context);
  ASSERT_TRUE(first->Write(SmallRequest()) && first->Write(SmallRequest()));
  std::deque<PuppetEngine::Held> held;
  for (int i = 0; i < 2; ++i) held.push_back(server_.engine->Take());
  ASSERT_TRUE(second->Write(SmallRequest()));  // the first has one for both of its images
  held.push_back(server_.engine->Take());

  ASSERT_TRUE(third->Write(SmallRequest("late")) && third->Read(&response_));
  EXPECT_EQ(response_.id(), "late");
  EXPECT_EQ(response_.error().code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(response_.error().message(), HasSubstr("limit: 2 requests"));
  EXPECT_GT(response_.error().retry_after(), 0);
  EXPECT_EQ(EncodeAlone().error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(server_.Metric("deepencoder_rejected_total", {{"reason", "requests"}}), 2);

  held[0].done(FilledResult(held[0].job));
  ASSERT_TRUE(first->Read(&response_));
  EXPECT_EQ(EncodeAlone().error_code(), grpc::RESOURCE_EXHAUSTED);  // the other is at work
  held[1].done(FilledResult(held[1].job));
  ASSERT_TRUE(first->Read(&response_));
  ASSERT_TRUE(third->Write(SmallRequest("again")));  // its stream goes on
  held.push_back(server_.engine->Take());
  held[3].done(FilledResult(held[3].job));
  ASSERT_TRUE(third->Read(&response_));
  EXPECT_FALSE(response_.has_error());
  held[2].done(FilledResult(held[2].job));
  for (const auto* stream : {&first, &second, &third}) {
    (*stream)->WritesDone();
    while ((*stream)->Read(&response_)) {
    }
    EXPECT_TRUE((*stream)->Finish().ok());
  }
}

TEST_F(EncodeStreamTest, CancelReachesEveryImageInFlight) {
  for (const char* id : {"a", "b"}) ASSERT_TRUE(stream_->Write(SmallRequest(id)));
  PuppetEngine::Held first = server_.engine->Take(), second = server_.engine->Take();
  context_.TryCancel();
  EXPECT_TRUE(Eventually([&] { return first.job.cancel->cancelled(); }));
  EXPECT_TRUE(second.job.cancel->cancelled());
  EXPECT_EQ(server_.Metric("deepencoder_calls_active"), 1);
  first.done(absl::CancelledError("gone"));
  second.done(FilledResult(second.job));  // done before the engine saw the flag
  EXPECT_EQ(stream_->Finish().error_code(), grpc::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return server_.Metric("deepencoder_calls_active") == 0; }));
  EXPECT_EQ(server_.Metric("deepencoder_requests_total", {{"code", "CANCELLED"}}), 1);
}

TEST_F(EncodeStreamTest, DrainAnswersWhatIsInFlightThenEnds) {
  ASSERT_TRUE(stream_->Write(SmallRequest("last")));
  PuppetEngine::Held held = server_.engine->Take();
  server_.service.Drain();
  held.done(FilledResult(held.job));
  ASSERT_TRUE(stream_->Read(&response_));
  EXPECT_EQ(response_.id(), "last");
  EXPECT_FALSE(response_.has_error());
  EXPECT_FALSE(stream_->Read(&response_));
  EXPECT_EQ(stream_->Finish().error_code(), grpc::UNAVAILABLE);
}

TEST_F(EncodeStreamTest, DrainEndsAnIdleStream) {
  ASSERT_TRUE(stream_->Write(SmallRequest("only")));
  PuppetEngine::Held held = server_.engine->Take();
  held.done(FilledResult(held.job));
  ASSERT_TRUE(stream_->Read(&response_));
  server_.service.Drain();
  EXPECT_FALSE(stream_->Read(&response_));
  EXPECT_EQ(stream_->Finish().error_code(), grpc::UNAVAILABLE);
  grpc::ClientContext context;
  const auto refused = server_.stub->EncodeImages(&context);
  EXPECT_FALSE(refused->Read(&response_));
  EXPECT_EQ(refused->Finish().error_code(), grpc::UNAVAILABLE);
}

TEST_F(EncodeStreamTest, AStreamWithoutImagesEndsWell) {
  stream_->WritesDone();
  EXPECT_FALSE(stream_->Read(&response_));
  EXPECT_TRUE(stream_->Finish().ok());
}

// The limit of an image is 1 MiB here; gRPC's, of a message, 8 MiB.
TEST_F(EncodeStreamTest, MessageOverTheLimitFailsAlone) {
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  ASSERT_TRUE(stream_->Write(SmallRequest("before")));
  for (const int mib : {2, 3, 5, 7}) {
    v1::EncodeImageRequest request = SmallRequest("encoded " + std::to_string(mib));
    request.set_encoded(std::string(mib << 20, 'x'));
    ASSERT_TRUE(stream_->Write(request));
    request.set_id("raw " + std::to_string(mib));
    request.mutable_raw()->set_rgb(std::string(mib << 20, 'x'));
    ASSERT_TRUE(stream_->Write(request));
  }
  ASSERT_TRUE(stream_->Write(SmallRequest("after")));
  stream_->WritesDone();
  std::map<std::string, v1::EncodeImageResponse> replies;
  while (stream_->Read(&response_)) replies[response_.id()] = response_;
  EXPECT_TRUE(stream_->Finish().ok());
  ASSERT_EQ(replies.size(), 10);
  for (const auto& [id, reply] : replies) {
    const bool good = id == "before" || id == "after";
    EXPECT_EQ(reply.has_error(), !good) << id;
    if (good) continue;
    EXPECT_EQ(reply.error().code(), grpc::RESOURCE_EXHAUSTED) << id;
    EXPECT_EQ(reply.error().retry_after(), 0) << id;
    EXPECT_THAT(reply.error().message(), HasSubstr("the limit of an image is 1048576")) << id;
  }
  EXPECT_EQ(server_.engine->seen(), 2);
}

TEST_F(EncodeStreamTest, MessageThatGrpcDoesNotReadEndsTheStreamNotTheServer) {
  v1::EncodeImageRequest request = SmallRequest("huge");
  request.set_encoded(std::string(9 << 20, 'x'));
  stream_->Write(request);
  EXPECT_FALSE(stream_->Read(&response_));
  EXPECT_EQ(stream_->Finish().error_code(), grpc::RESOURCE_EXHAUSTED);
  server_.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  grpc::ClientContext context;
  EXPECT_TRUE(server_.stub->EncodeImage(&context, SmallRequest(), &response_).ok());
}

// PeekId reads what nobody has parsed.
TEST(PeekIdTest, FindsTheIdWhereverItStandsAndNothingElse) {
  const auto peek = [](const std::string& bytes) {
    // One byte a slice: every field lies across slices.
    std::vector<grpc::Slice> slices;
    for (const char byte : bytes) slices.emplace_back(&byte, 1);
    return PeekId(grpc::ByteBuffer(slices.data(), slices.size()));
  };
  v1::EncodeImageRequest request = SmallRequest("a page");
  const std::string good = request.SerializeAsString();
  EXPECT_EQ(peek(good), "a page");
  request.clear_id();
  const std::string rest = request.SerializeAsString();
  EXPECT_EQ(peek(rest + good), "a page");  // behind the image
  EXPECT_EQ(peek(rest), "");
  EXPECT_EQ(peek(""), "");
  for (size_t end = 0; end < 8; ++end) EXPECT_EQ(peek(good.substr(0, end)), "") << end;
  EXPECT_EQ(peek(std::string("\x0a\x02\xff\xfe", 4)), "");      // no UTF-8
  EXPECT_EQ(peek("\x0a\xff\xff\xff\xff\x0f"), "");              // 4 GiB of id
  EXPECT_EQ(peek(std::string(300, '\x0b')), "");                // groups in groups
  EXPECT_EQ(peek("\x0a\x81\x02" + std::string(257, 'x')), "");  // longer than an id may be
  EXPECT_EQ(peek("\x07\x0a\x01x"), "");                         // no wire type
}

// Answers from many threads while the client reads slowly: every image exactly once.
TEST_F(EncodeStreamTest, EveryImageIsAnsweredOnce) {
  constexpr int kImages = 400;
  std::vector<std::thread> answerers;
  for (int t = 0; t < 3; ++t) {
    answerers.emplace_back([this] {
      while (true) {
        PuppetEngine::Held held = server_.engine->Take();
        const bool stop = held.job.max_tiles == 32;
        held.done(FilledResult(held.job));
        if (stop) return;
      }
    });
  }
  std::thread writer([this] {
    for (int i = 0; i < kImages; ++i) ASSERT_TRUE(stream_->Write(SmallRequest(std::to_string(i))));
    for (int t = 0; t < 3; ++t) {
      v1::EncodeImageRequest stop = SmallRequest("stop" + std::to_string(t));
      stop.set_max_tiles(32);
      ASSERT_TRUE(stream_->Write(stop));
    }
    stream_->WritesDone();
  });
  std::map<std::string, int> replies;
  while (stream_->Read(&response_)) ++replies[response_.id()];
  writer.join();
  for (std::thread& thread : answerers) thread.join();
  EXPECT_TRUE(stream_->Finish().ok());
  EXPECT_EQ(replies.size(), kImages + 3);
  for (const auto& [id, count] : replies) EXPECT_EQ(count, 1) << id;
}

}  // namespace
}  // namespace deepencoder
