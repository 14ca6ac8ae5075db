// What fails: batches, slots, devices, decoders.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "server/engine/retry_hint.h"
#include "tests/server/engine/engine_fixture.h"

namespace deepencoder {
namespace {

class ThrowingDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<HeldImage> Decode(std::span<const std::byte> /*file*/,
                                   const DecodeOptions& /*options*/) override {
    throw std::runtime_error("Library(4.6.0) /a/path/of/its/source.cpp:73: error");
  }
};

TEST_F(EngineTest, WhatALibraryThrowsIsForTheLogAlone) {
  std::vector<std::string> log;
  EngineOptions options = Options();
  options.log = [&](const std::string& line) { log.push_back(line); };
  options.decoder = std::make_shared<ThrowingDecoder>();
  Start(options);
  // A BMP of 16 x 16 pixels, as far as its header goes.
  auto file = std::make_shared<std::string>(
      "BM\x36\x03\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x10\0\0\0\x10\0\0\0\x01\0\x18\0", 30);
  file->resize(54 + 16 * 16 * 3);
  EncodeJob job = RawJob(1);
  job.image = EncodedFile{{file, std::as_bytes(std::span(*file))}};
  Send(1, std::move(job));
  Send(2);
  answers_.Await(2);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_EQ(answers_.Get(1).status().message(), "a library failed while this image was prepared");
  EXPECT_TRUE(answers_.Get(2).ok());
  engine_.reset();  // ends the thread that logs
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find("source.cpp"), std::string::npos);
}

TEST_F(EngineTest, AFaultFailsItsBatchAndTheSlotIsRebuilt) {
  std::vector<std::string> log;
  EngineOptions options = Options();
  options.log = [&](const std::string& line) { log.push_back(line); };
  Start(options);
  device().encode_gate.Close();
  device().encode_faults = 1;
  Send(1);
  device().AwaitEncodes(1);
  Send(2);
  Send(3);
  device().AwaitViews(3);
  device().encode_gate.Open();
  answers_.Await(3);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_EQ(CheckRows(*answers_.Get(2), 0, 2), "");
  EXPECT_EQ(CheckRows(*answers_.Get(3), 0, 3), "");
  EXPECT_EQ(device().slots_made, 2);
  EXPECT_EQ(device().slots_destroyed, 1);
  EXPECT_TRUE(engine_->healthy());
  engine_.reset();  // ends the thread that logs
  EXPECT_EQ(log.size(), 2u);
}

// The other views of an image that failed are not encoded.
TEST_F(EngineTest, AnImageFailsOnceAndWhole) {
  Start(Options(), 1, 1, {1});
  device().encode_faults = 1;
  Send(1, RawJob(1, Mode::kGundam, 1300, 700));
  answers_.Await(1);
  Send(2);
  answers_.Await(2);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_EQ(answers_.times(1), 1);
  EXPECT_TRUE(answers_.Get(2).ok());
  EXPECT_EQ(device().encodes(), 2);
  EXPECT_EQ(observer_.queue_items, 0);
}

TEST_F(EngineTest, WithoutASlotTheDeviceIsLostAndNothingIsAccepted) {
  Start(Options());
  device().encode_gate.Close();
  device().encode_faults = 1;
  device().create_fails = true;
  Send(1);
  device().AwaitEncodes(1);
  Send(2);  // waits in the queue of the device
  device().AwaitViews(2);
  device().encode_gate.Open();
  answers_.Await(2);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(engine_->healthy());
  Send(3);
  EXPECT_EQ(CodeOf(3), absl::StatusCode::kUnavailable);
  EXPECT_EQ(observer_.rejects[static_cast<int>(RejectReason::kUnhealthy)], 1);
  EXPECT_EQ(observer_.in_flight_images, 0);
  EXPECT_EQ(observer_.queue_items, 0);
}

TEST_F(EngineTest, WhatWaitsForALostDeviceMovesToAnother) {
  Start(Options(), 2);
  for (int i = 0; i < 2; ++i) device(i).encode_gate.Close();
  device(0).encode_faults = 1;
  device(0).create_fails = true;
  Send(1);
  Send(2);
  device(0).AwaitEncodes(1);
  device(1).AwaitEncodes(1);
  const bool first_on_lost = device(0).WasEncoded(1);
  for (int tag = 3; tag <= 6; ++tag) Send(tag);
  device(0).AwaitViews(3);  // two of the four on each
  device(1).AwaitViews(3);
  device(0).encode_gate.Open();
  answers_.Await(1);
  EXPECT_EQ(CodeOf(first_on_lost ? 1 : 2), absl::StatusCode::kInternal);
  device(1).encode_gate.Open();
  answers_.Await(6);
  EXPECT_TRUE(answers_.Get(first_on_lost ? 2 : 1).ok());
  for (int tag = 3; tag <= 6; ++tag) {
    ASSERT_TRUE(answers_.Get(tag).ok()) << answers_.Get(tag).status().ToString();
    EXPECT_EQ(CheckRows(*answers_.Get(tag), 0, tag), "");
  }
  EXPECT_FALSE(engine_->healthy());
  Send(7);
  answers_.Await(7);
  EXPECT_TRUE(answers_.Get(7).ok());  // on what is left
}

TEST_F(EngineTest, ADeviceThatFailsEveryBatchIsNotHealthy) {
  Start(Options());
  device().encode_faults = 1000;
  int sent = 0;
  while (engine_->healthy()) {
    Send(++sent);
    answers_.Await(sent);
    // Refused only once the device is lost, which happens just after the last fault's answer.
    ASSERT_TRUE(absl::IsInternal(answers_.Get(sent).status()) ||
                absl::IsUnavailable(answers_.Get(sent).status()));
    ASSERT_LT(device().encodes(), 10);
  }
  EXPECT_GT(device().encodes(), 1);
}

TEST_F(EngineTest, ADeviceThatCannotMakeViewsIsNoticed) {
  Start(Options());
  device().view_faults = 3;
  device().create_fails = true;
  for (int tag = 1; tag <= 3; ++tag) {
    Send(tag);
    answers_.Await(tag);
    EXPECT_EQ(CodeOf(tag), absl::StatusCode::kInternal);
  }
  // The slot finds out on its own thread; a request after that is refused, whichever way.
  Send(4);
  answers_.Await(4);
  const absl::Status status = answers_.Get(4).status();
  EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status.ToString();
  engine_.reset();
  EXPECT_EQ(device().slots_destroyed, 1);
  EXPECT_EQ(device().slots_made, 1);
}

// The device that has a large image gets none of the small ones until they make up for it.
TEST_F(EngineTest, TheDeviceWithLessToDoIsChosen) {
  Start(Options(), 2);
  device(0).encode_gate.Close();
  device(1).encode_gate.Close();
  Send(1, RawJob(1, Mode::kLarge));  // 1280^2 pixels against 512^2
  device(0).AwaitEncodes(1);  // of equals the first: it has its place before the others choose
  for (int tag = 2; tag <= 7; ++tag) Send(tag);
  device(1).AwaitViews(6);  // all have chosen while the large one still counts
  device(0).encode_gate.Open();
  device(1).encode_gate.Open();
  answers_.Await(7);
  FakeDevice& small = device(0).WasEncoded(1) ? device(1) : device(0);
  for (int tag = 2; tag <= 7; ++tag) EXPECT_TRUE(small.WasEncoded(tag)) << tag;
}

}  // namespace
}  // namespace deepencoder
