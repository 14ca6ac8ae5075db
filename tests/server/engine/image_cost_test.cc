#include "server/engine/image_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr int64_t kRowBytes = int64_t{kEmbeddingWidth} * 2;  // of bf16
constexpr int64_t kTileBytes = int64_t{3} * 640 * 640, kGlobalBytes = int64_t{3} * 1024 * 1024;

std::string Refusal(const EncodeJob& job, const DecodeOptions& limits = {}) {
  const absl::StatusOr<ImageCost> cost = CostOf(job, limits);
  EXPECT_EQ(cost.status().code(), absl::StatusCode::kInvalidArgument) << cost.status();
  return std::string(cost.status().message());
}

TEST(ImageCostTest, ARawImageHoldsItsPixelsItsViewsAndItsReply) {
  const absl::StatusOr<ImageCost> cost = CostOf(RawJob(1, Mode::kBase, 300, 200), {});
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_THAT(cost->views, ElementsAre(Pair(1024, 1)));
  EXPECT_EQ(cost->charge.views, 1);
  EXPECT_EQ(cost->charge.bytes, 3 * 300 * 200 + kGlobalBytes + kRowBytes * 273);
}

TEST(ImageCostTest, GundamHoldsItsTilesToo) {
  const absl::StatusOr<ImageCost> cost = CostOf(RawJob(1, Mode::kGundam, 1300, 1950), {});
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_THAT(cost->views, ElementsAre(Pair(640, 6), Pair(1024, 1)));
  EXPECT_EQ(cost->charge.views, 7);
  const int rows = LayoutOf(Mode::kGundam, {2, 3}).rows;
  EXPECT_EQ(cost->charge.bytes, 3 * 1300 * 1950 + 6 * kTileBytes + kGlobalBytes + kRowBytes * rows);
}

// Its header does not say how it lies, so both ways are paid for.
TEST(ImageCostTest, AnImageThatMayBeTurnedCostsTheMoreOfBoth) {
  for (const auto& [width, height] : {std::pair(1200, 700), std::pair(2000, 650)}) {
    const absl::StatusOr<ImageCost> lying = CostOf(RawJob(1, Mode::kGundam, width, height), {});
    const absl::StatusOr<ImageCost> upright = CostOf(RawJob(1, Mode::kGundam, height, width), {});
    ASSERT_TRUE(lying.ok() && upright.ok());
    EXPECT_EQ(lying->views, upright->views);
    EXPECT_EQ(lying->charge.views, upright->charge.views);
    EXPECT_EQ(lying->charge.bytes, upright->charge.bytes);
    for (const auto& [w, h] : {std::pair(width, height), std::pair(height, width)}) {
      const absl::StatusOr<ViewPlan> plan = PlanViews(w, h, Mode::kGundam, kDefaultMaxTiles);
      ASSERT_TRUE(plan.ok());
      EXPECT_LE(plan->views(), lying->charge.views);
      EXPECT_LE(kRowBytes * LayoutOf(Mode::kGundam, plan->tiles).rows, lying->charge.bytes);
    }
  }
}

TEST(ImageCostTest, RawPixelsThatAreNoImageAreRefusedWithTheFigures) {
  EncodeJob job = RawJob(1, Mode::kBase, 4, 3);
  auto& raw = std::get<RawPixels>(job.image);
  raw.width = 5;
  EXPECT_EQ(Refusal(job), "raw image of 5 x 3 must have 45 bytes; it has 36");
  raw.width = 0;
  EXPECT_EQ(Refusal(job), "raw image of 0 x 3 pixels: both must be at least 1");
  raw.width = 4;
  raw.height = -3;
  EXPECT_EQ(Refusal(job), "raw image of 4 x -3 pixels: both must be at least 1");
  raw.height = 3;
  EXPECT_EQ(Refusal(job, {.max_pixels = 11}), "raw image of 4 x 3 has 12 pixels; the limit is 11");
  // The product would not fit in 32 bits.
  raw.width = raw.height = 1 << 16;
  EXPECT_EQ(Refusal(job),
            "raw image of 65536 x 65536 has 4294967296 pixels; the limit is 178956970");
}

TEST(ImageCostTest, FilesAndPlansAreRefusedWithTheirReasons) {
  EncodeJob file = RawJob(1);
  file.image = EncodedFile{};
  EXPECT_THAT(Refusal(file), HasSubstr("empty"));
  EncodeJob tiles = RawJob(1, Mode::kGundam);
  tiles.max_tiles = kMaxMaxTiles + 1;
  EXPECT_THAT(Refusal(tiles), HasSubstr("max_tiles"));
  Refusal(RawJob(1, Mode::kBase, 65'000, 1));
}

// 8 x 4, 24 bits a pixel, without its pixels: nothing but the header is read.
std::vector<std::byte> BmpHeader() {
  std::vector<std::byte> file(54);
  const auto put = [&](size_t at, uint32_t value) {
    for (int i = 0; i < 4; ++i) file[at + i] = static_cast<std::byte>(value >> (8 * i));
  };
  file[0] = std::byte{'B'};
  file[1] = std::byte{'M'};
  put(2, 54 + 96);
  put(10, 54);
  put(14, 40);
  put(18, 8);
  put(22, 4);
  file[26] = std::byte{1};
  file[28] = std::byte{24};
  return file;
}

TEST(ImageCostTest, AFileHoldsItselfAndItsDecodingAsWell) {
  const std::vector<std::byte> bytes = BmpHeader();
  EncodeJob job = RawJob(1, Mode::kTiny);
  job.image = EncodedFile{{nullptr, bytes}};
  const absl::StatusOr<ImageHeader> header = ReadHeader(bytes, {});
  ASSERT_TRUE(header.ok()) << header.status();
  const absl::StatusOr<ImageCost> cost = CostOf(job, {});
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_GE(DecodeBytes(*header), size_t{3} * 8 * 4);
  const int rows = LayoutOf(Mode::kTiny, {}).rows;
  EXPECT_EQ(cost->charge.bytes, 54 + static_cast<int64_t>(DecodeBytes(*header)) +
                                    int64_t{3} * 512 * 512 + kRowBytes * rows);
}

}  // namespace
}  // namespace deepencoder
