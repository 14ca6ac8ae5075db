// Recorded views and tile grids of the reference, all of them, to the bit.
#include "encoder/image/views.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <map>

#include "encoder/image/decode.h"
#include "encoder/image/view_plan.h"
#include "tests/encoder/image/test_files.h"
#include "tests/encoder/image/test_sha256.h"

namespace deepencoder {
namespace {

using google::protobuf::ListValue;
using google::protobuf::Value;
using ::testing::HasSubstr;

Value ReadJson(const std::string& name) {
  const FileBytes file = ReadTestFile(std::string(DEEPENCODER_TEST_DATA) + "/" + name);
  const std::string text(reinterpret_cast<const char*>(file.data()), file.size());
  Value value;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(text, &value).ok());
  return value;
}

int Integer(const ListValue& list, int i) {
  return static_cast<int>(list.values(i).number_value());
}

TEST(Sha256, OfTheStandardsExamples) {
  const std::string abc = "abc";
  EXPECT_EQ(Sha256Hex({reinterpret_cast<const uint8_t*>(abc.data()), abc.size()}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(RenderViews, EqualsEveryRecordedView) {
  const Value entries = ReadJson("views.json");
  std::map<std::string, RgbImage> images;
  int views_seen = 0;
  for (const Value& value : entries.list_value().values()) {
    const auto& entry = value.struct_value().fields();
    const std::string& name = entry.at("image").string_value();
    const std::string& mode_name = entry.at("mode").string_value();
    SCOPED_TRACE(name + " " + mode_name);
    if (!images.contains(name)) {
      const auto decoded = DecodeImage(ReadTestImage(name), {});
      ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
      images.emplace(name, *decoded);
    }
    const RgbImage& image = images.at(name);
    const ListValue& size = entry.at("size").list_value();
    EXPECT_EQ(image.width(), Integer(size, 0));
    EXPECT_EQ(image.height(), Integer(size, 1));

    const auto mode = ParseMode(mode_name);
    ASSERT_TRUE(mode.has_value());
    const auto plan = PlanViews(image.width(), image.height(), *mode, kDefaultMaxTiles);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const ListValue& tiles = entry.at("tiles").list_value();
    EXPECT_EQ(plan->tiles, (TileGrid{Integer(tiles, 0), Integer(tiles, 1)}));

    std::vector<std::string> expected;
    for (const Value& tile : entry.at("tile_sha256").list_value().values()) {
      expected.push_back(tile.string_value());
    }
    expected.push_back(entry.at("global_sha256").string_value());
    std::vector<std::string> seen;
    for (const View& view : RenderViews(image, *plan)) seen.push_back(Sha256Hex(view.rgb));
    EXPECT_EQ(seen, expected);
    views_seen += static_cast<int>(seen.size());
  }
  EXPECT_EQ(entries.list_value().values_size(), 220);
  EXPECT_GT(views_seen, 220);
}

TEST(PlanViews, EqualsEveryRecordedTileGrid) {
  const Value grids = ReadJson("tile_grids.json");
  const ListValue& rows = grids.struct_value().fields().at("rows").list_value();
  EXPECT_EQ(rows.values_size(), 894);
  for (const Value& value : rows.values()) {
    const ListValue& row = value.list_value();
    const int width = Integer(row, 0), height = Integer(row, 1);
    for (const auto& [max_tiles, at] : {std::pair{6, 2}, std::pair{9, 4}}) {
      // The seven images that fit in one tile are recorded as the rule of ratios alone would have them.
      const bool fits_one_tile = width <= 640 && height <= 640;
      const TileGrid expected =
          fits_one_tile ? TileGrid{} : TileGrid{Integer(row, at), Integer(row, at + 1)};
      EXPECT_EQ(ChooseTileGrid(width, height, max_tiles, 640), expected)
          << width << " x " << height << ", at most " << max_tiles;
      const auto plan = PlanViews(width, height, Mode::kGundam, max_tiles);
      if (!plan.ok()) continue;  // an aspect ratio that no letterbox can hold
      EXPECT_EQ(plan->tiles, expected);
      EXPECT_EQ(plan->views(), expected.count() + 1);
    }
  }
}

TEST(PlanViews, CentresALetterboxRoundingHalfToEven) {
  struct Case {
    int width, height;  // of the image
    int job_width, job_height, left, top;
  };
  for (const Case& c : {Case{1024, 1021, 1024, 1021, 0, 2}, Case{1024, 1023, 1024, 1023, 0, 0},
                        Case{1021, 1024, 1021, 1024, 2, 0}, Case{300, 300, 1024, 1024, 0, 0},
                        Case{1, 1, 1024, 1024, 0, 0}, Case{2048, 3, 1024, 2, 0, 511},
                        Case{2048, 5, 1024, 2, 0, 511}}) {
    const auto plan = PlanViews(c.width, c.height, Mode::kBase, kDefaultMaxTiles);
    ASSERT_TRUE(plan.ok());
    ASSERT_EQ(plan->jobs.size(), 1u);
    const ResizeJob& job = plan->jobs[0];
    EXPECT_EQ(job.width, c.job_width) << c.width << " x " << c.height;
    EXPECT_EQ(job.height, c.job_height) << c.width << " x " << c.height;
    EXPECT_EQ(job.left, c.left) << c.width << " x " << c.height;
    EXPECT_EQ(job.top, c.top) << c.width << " x " << c.height;
  }
}

TEST(PlanViews, RefusesALetterboxSideOfZero) {
  for (const auto& [width, height, mode] :
       {std::tuple{2048, 1, Mode::kBase}, std::tuple{1, 2048, Mode::kGundam},
        std::tuple{10000, 4, Mode::kBase}, std::tuple{65000, 1, Mode::kLarge}}) {
    const auto plan = PlanViews(width, height, mode, kDefaultMaxTiles);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(plan.status().ToString(), HasSubstr("rounds to 0"));
  }
  EXPECT_TRUE(PlanViews(2047, 1, Mode::kBase, kDefaultMaxTiles).ok());
  EXPECT_TRUE(PlanViews(65000, 1, Mode::kTiny, kDefaultMaxTiles).ok());  // stretched
}

TEST(PlanViews, RefusesSizesAndTileCountsOutOfRange) {
  EXPECT_FALSE(PlanViews(0, 5, Mode::kTiny, kDefaultMaxTiles).ok());
  EXPECT_FALSE(PlanViews(5, 0, Mode::kTiny, kDefaultMaxTiles).ok());
  EXPECT_FALSE(PlanViews(5, 5, Mode::kGundam, kMinMaxTiles - 1).ok());
  EXPECT_FALSE(PlanViews(5, 5, Mode::kGundam, kMaxMaxTiles + 1).ok());
  EXPECT_TRUE(PlanViews(5, 5, Mode::kGundam, kMinMaxTiles).ok());
}

TEST(RenderViews, HoldsExtremeShapes) {
  for (const auto& [width, height] : {std::pair{65000, 1}, std::pair{1, 65000}, std::pair{1, 1}}) {
    const RgbImage image = TestPicture(width, height);
    const auto plan = PlanViews(width, height, Mode::kTiny, kDefaultMaxTiles);
    ASSERT_TRUE(plan.ok());
    const std::vector<View> views = RenderViews(image, *plan);
    ASSERT_EQ(views.size(), 1u);
    EXPECT_EQ(views[0].rgb.size(), size_t{512} * 512 * 3);
  }
}

}  // namespace
}  // namespace deepencoder
