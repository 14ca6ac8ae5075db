// One request at a time through the engine: rows, refusals, deadlines, cancelling, draining.
#include "server/engine/serving_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "server/engine/retry_hint.h"
#include "tests/server/engine/engine_fixture.h"

namespace deepencoder {
namespace {

using ::testing::HasSubstr;

int64_t Dropped(const CountingObserver& observer, DropReason reason) {
  return observer.drops[static_cast<int>(reason)];
}

TEST_F(EngineTest, RowsAreAssembledInEveryModeAndType) {
  Start(Options(), 1, 2);
  int number = 0;
  for (const ModeSpec& mode : Modes()) {
    for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
      EncodeJob job = RawJob(number, mode.mode, 1300, 700);
      job.dtype = dtype;
      Send(number++, std::move(job));
    }
  }
  answers_.Await(number);
  int64_t rows = 0;
  for (int i = 0; i < number; ++i) {
    const auto result = answers_.Get(i);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(CheckRows(*result, 0, i), "") << "job " << i;
    EXPECT_EQ(result->image_width, 1300);
    EXPECT_EQ(result->image_height, 700);
    EXPECT_EQ(result->tiles.count() > 0, result->mode == Mode::kGundam);
    rows += result->rows;
  }
  EXPECT_EQ(observer_.images, number);
  EXPECT_EQ(observer_.rows, rows);
  EXPECT_EQ(observer_.in_flight_images, 0);
  EXPECT_EQ(observer_.in_flight_bytes, 0);
  EXPECT_EQ(observer_.queue_items, 0);
}

TEST_F(EngineTest, BadImagesAreRefusedWithTheReason) {
  Start(Options());
  EncodeJob empty = RawJob(1);
  empty.image = EncodedFile{};
  EncodeJob short_pixels = RawJob(1);
  std::get<RawPixels>(short_pixels.image).width = 3;
  EncodeJob no_height = RawJob(1);
  std::get<RawPixels>(no_height.image).height = 0;
  EncodeJob tiles = RawJob(1, Mode::kGundam);
  tiles.max_tiles = 3;
  EncodeJob sliver = RawJob(1, Mode::kBase, 65000, 1);
  int number = 0;
  for (const EncodeJob& job : {empty, short_pixels, no_height, tiles, sliver}) {
    Send(number, job);
    EXPECT_EQ(CodeOf(number), absl::StatusCode::kInvalidArgument) << number;
    ++number;
  }
  EXPECT_THAT(std::string(answers_.Get(1).status().message()), HasSubstr("18 bytes"));
  EXPECT_EQ(observer_.in_flight_images, 0);
  EXPECT_EQ(device().encodes(), 0);
}

TEST_F(EngineTest, ABadFileFailsAlone) {
  Start(Options());
  // A PNG whose header is right and whose pixels are missing.
  const std::string header(
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10\0\0\0\x10\x08\x02\0\0\0"
      "\x90\x91\x68\x36",
      33);
  auto bytes = std::make_shared<std::string>(header);
  EncodeJob broken = RawJob(1);
  broken.image = EncodedFile{{bytes, std::as_bytes(std::span(*bytes))}};
  Send(1, std::move(broken));
  Send(2);
  answers_.Await(2);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(answers_.Get(2).ok());
}

TEST_F(EngineTest, FullMeansRetryLater) {
  EngineOptions options = Options();
  options.limits.images = 1;
  Start(options);
  device().encode_gate.Close();
  Send(1);
  Send(2);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfter(answers_.Get(2).status()).has_value());
  device().encode_gate.Open();
  answers_.Await(2);
  Send(3);
  answers_.Await(3);
  EXPECT_TRUE(answers_.Get(3).ok());
}

TEST_F(EngineTest, WhoIsGoneOnArrivalIsRefused) {
  Start(Options());
  EncodeJob late = RawJob(1);
  late.deadline = clock_.Now();
  EncodeJob left = RawJob(2);
  left.cancel = std::make_shared<CancelFlag>();
  left.cancel->Cancel();
  Send(1, late);
  Send(2, left);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kCancelled);
  EXPECT_EQ(observer_.drops_before[static_cast<int>(Stage::kDecode)], 2);
  EXPECT_EQ(observer_.stages[static_cast<int>(Stage::kDecode)], 0);
}

TEST_F(EngineTest, NothingIsDecodedForWhoIsGone) {
  Start(Options());
  device().views_gate.Close();
  Send(1);
  device().AwaitViews(1);  // the only decode thread is in there
  EncodeJob late = RawJob(2);
  late.deadline = clock_.Now() + absl::Seconds(1);
  EncodeJob left = RawJob(3);
  left.cancel = std::make_shared<CancelFlag>();
  Send(2, late);
  Send(3, left);
  clock_.Advance(absl::Seconds(1));
  left.cancel->Cancel();
  device().views_gate.Open();
  answers_.Await(3);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(CodeOf(3), absl::StatusCode::kCancelled);
  EXPECT_EQ(observer_.drops_before[static_cast<int>(Stage::kDecode)], 2);
  EXPECT_EQ(observer_.stages[static_cast<int>(Stage::kDecode)], 1);
  EXPECT_FALSE(device().WasViewed(2));
  EXPECT_FALSE(device().WasViewed(3));
}

TEST_F(EngineTest, NoViewsAreMadeForWhoLeftDuringDecoding) {
  EncodeJob left = RawJob(1);
  left.cancel = std::make_shared<CancelFlag>();
  observer_.on_stage = [&](Stage stage) {
    if (stage == Stage::kDecode) left.cancel->Cancel();
  };
  Start(Options());
  Send(1, left);
  answers_.Await(1);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kCancelled);
  EXPECT_EQ(observer_.drops_before[static_cast<int>(Stage::kViews)], 1);
  EXPECT_FALSE(device().WasViewed(1));
}

// The observer hears of the shorter queue when the batch is made: after the look on dequeue, before the
// launch.
TEST_F(EngineTest, NothingIsLaunchedForWhoLeftInTheLastMoment) {
  EncodeJob left = RawJob(1);
  left.cancel = std::make_shared<CancelFlag>();
  observer_.on_queue = [&](int64_t items) {
    if (items == 0) left.cancel->Cancel();
  };
  Start(Options());
  Send(1, left);
  answers_.Await(1);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kCancelled);
  EXPECT_EQ(observer_.drops_before[static_cast<int>(Stage::kCompute)], 1);
  EXPECT_EQ(device().encodes(), 0);
}

TEST_F(EngineTest, NothingIsQueuedForWhoLeftDuringTheViews) {
  Start(Options());
  device().views_gate.Close();
  EncodeJob left = RawJob(1);
  left.cancel = std::make_shared<CancelFlag>();
  Send(1, left);
  device().AwaitViews(1);
  left.cancel->Cancel();
  device().views_gate.Open();
  answers_.Await(1);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kCancelled);
  EXPECT_EQ(observer_.drops_before[static_cast<int>(Stage::kQueue)], 1);
  EXPECT_EQ(device().encodes(), 0);
}

TEST_F(EngineTest, NothingIsEncodedForWhoIsGone) {
  Start(Options());
  device().encode_gate.Close();
  Send(1);
  device().AwaitEncodes(1);  // the only slot is busy
  EncodeJob late = RawJob(2);
  late.deadline = clock_.Now() + absl::Seconds(1);
  EncodeJob left = RawJob(3);
  left.cancel = std::make_shared<CancelFlag>();
  Send(2, late);
  Send(3, left);
  Send(4);
  device().AwaitViews(4);
  clock_.Advance(absl::Seconds(1));
  left.cancel->Cancel();
  device().encode_gate.Open();
  answers_.Await(4);
  EXPECT_EQ(CodeOf(2), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(CodeOf(3), absl::StatusCode::kCancelled);
  EXPECT_TRUE(answers_.Get(1).ok());
  EXPECT_TRUE(answers_.Get(4).ok());
  EXPECT_FALSE(device().WasEncoded(2));
  EXPECT_FALSE(device().WasEncoded(3));
  EXPECT_EQ(Dropped(observer_, DropReason::kDeadline), 1);
  EXPECT_EQ(Dropped(observer_, DropReason::kCancelled), 1);
  EXPECT_EQ(observer_.drops_before[static_cast<int>(Stage::kCompute)], 2);
}

TEST_F(EngineTest, ABusySlotFindsABatchWhenItIsDone) {
  Start(Options());
  device().encode_gate.Close();
  Send(1);
  device().AwaitEncodes(1);
  for (int tag = 2; tag <= 9; ++tag) Send(tag);
  device().AwaitViews(9);
  EncodeJob last = RawJob(10, Mode::kBase);
  Send(10, last);
  device().AwaitViews(10);  // so all before it are queued
  device().encode_gate.Open();
  answers_.Await(10);
  EXPECT_EQ(device().encodes(), 3);
  EXPECT_EQ(observer_.batches, 3);
  EXPECT_EQ(observer_.views, 10);
}

TEST_F(EngineTest, DrainAnswersWhatIsInFlightAndRefusesTheRest) {
  Start(Options());
  device().encode_gate.Close();
  Send(1);
  Send(2);
  device().AwaitEncodes(1);
  EXPECT_FALSE(engine_->Drain(clock_.Now()));
  Send(3);
  EXPECT_EQ(CodeOf(3), absl::StatusCode::kUnavailable);
  EXPECT_EQ(observer_.rejects[static_cast<int>(RejectReason::kDraining)], 1);
  std::thread open([&] { device().encode_gate.Open(); });
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  open.join();
  EXPECT_EQ(answers_.count(), 3);
  EXPECT_TRUE(answers_.Get(1).ok());
  EXPECT_TRUE(answers_.Get(2).ok());
}

TEST_F(EngineTest, TheEndOfTheEngineAnswersWhatIsLeft) {
  Start(Options());
  device().encode_gate.Close();
  device().views_gate.Close();
  device().views_gate.Admit(2);
  Send(1);
  device().AwaitEncodes(1);
  Send(2);  // will be queued
  Send(3);  // will be in the decode pool
  device().AwaitViews(3);
  Send(4);  // will wait for the decode pool
  std::thread end([&] { engine_.reset(); });
  device().views_gate.Open();
  device().encode_gate.Open();
  end.join();
  ASSERT_EQ(answers_.count(), 4);
  for (int number = 1; number <= 4; ++number) {
    EXPECT_EQ(answers_.times(number), 1);
    const absl::Status status = answers_.Get(number).status();
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status.ToString();
  }
}

TEST_F(EngineTest, OptionsAreChecked) {
  const auto create = [&](const EngineOptions& options, int devices, size_t width) {
    std::vector<DeviceSlots> made;
    for (int i = 0; i < devices; ++i) {
      made.push_back(MakeFakeSlots(std::make_shared<FakeDevice>(), 1));
    }
    SpecialRows special = FakeSpecialRows();
    special.image_newline.resize(width);
    return ServingEngine::Create(options, std::move(made), std::move(special), &observer_, &clock_)
        .status()
        .code();
  };
  EngineOptions no_room;
  no_room.limits.images = 0;
  EngineOptions padding;
  padding.batch.max_padding = 1.5;
  EngineOptions delay;
  delay.batch.max_delay = -absl::Seconds(1);
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(create({}, 1, kEmbeddingWidth), absl::StatusCode::kOk);
  EXPECT_EQ(create({}, 0, kEmbeddingWidth), kInvalid);
  EXPECT_EQ(create({}, 1, 7), kInvalid);
  EXPECT_EQ(create(no_room, 1, kEmbeddingWidth), kInvalid);
  EXPECT_EQ(create(padding, 1, kEmbeddingWidth), kInvalid);
  EXPECT_EQ(create(delay, 1, kEmbeddingWidth), kInvalid);
}

}  // namespace
}  // namespace deepencoder
