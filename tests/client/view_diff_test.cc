// Pictures and comparisons that need no server.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "client/client.h"
#include "client/commands.h"
#include "client/diff_command.h"
#include "client/diff_heat.h"
#include "client/diff_rows.h"
#include "client/tensor_file.h"
#include "client/view_blocks.h"
#include "client/view_canvas.h"
#include "client/view_command.h"
#include "client/view_picture.h"
#include "encoder/image/decode.h"
#include "tests/work_folder.h"

namespace deepencoder::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr deepencoder::Mode kGundam = deepencoder::Mode::kGundam;

std::string TestImage(const std::string& name) {
  return std::string(DEEPENCODER_TEST_DATA) + "/images/" + name;
}

std::string Output(const std::string& name) { return WorkFolder() + "/" + name; }

// What a command prints.
template <typename Run>
std::string Printed(Run run, const std::vector<std::string>& args, int status = kExitOk) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run(args), status);
  return testing::internal::GetCapturedStdout();
}

absl::StatusOr<RgbImage> Decode(const std::string& path) {
  const auto file = ReadImageFile(path);
  if (!file.ok()) return file.status();
  return DecodeImage(std::as_bytes(std::span(file->encoded)), {});
}

TEST(CanvasTest, WhatIsDrawnIsInTheFile) {
  Canvas canvas(40, 30, {10, 20, 30});
  canvas.Fill({-5, -5, 15, 15}, {210, 220, 230}, 0.5);  // partly outside
  canvas.Frame({20, 10, 10, 10}, {1, 2, 3});
  EXPECT_EQ(canvas.At(9, 9), (Colour{110, 120, 130}));
  EXPECT_EQ(canvas.At(10, 9), (Colour{10, 20, 30}));
  EXPECT_EQ(canvas.At(20, 19), (Colour{1, 2, 3}));
  EXPECT_EQ(canvas.At(21, 11), (Colour{10, 20, 30}));
  canvas.Write(2, 22, "x", {14}, {255, 255, 255});
  canvas.Paste(35, 25, cv::Mat(20, 20, CV_8UC3, cv::Scalar(7, 8, 9)));
  EXPECT_EQ(canvas.At(39, 29), (Colour{7, 8, 9}));

  const std::string path = Output("canvas.png");
  ASSERT_TRUE(WritePng(path, canvas.pixels()).ok());
  const auto read = Decode(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->bytes(), size_t{40} * 30 * 3);
  EXPECT_EQ(std::memcmp(read->data(), canvas.pixels().ptr(), read->bytes()), 0);
  EXPECT_FALSE(WritePng("/no/such/folder/x.png", canvas.pixels()).ok());
}

TEST(BlocksTest, RowsAreThoseOfTheLayout) {
  const TileGrid tiles{3, 2};
  const SequenceLayout layout = LayoutOf(kGundam, tiles);
  const std::vector<Block> blocks = BlocksOf(kGundam, tiles, {});
  ASSERT_EQ(blocks.size(), 2U);
  std::vector<int> newlines;
  for (const Block& block : blocks) {
    for (int line = 0; line < block.lines; ++line)
      newlines.push_back(block.RowOf(line, block.columns));
  }
  EXPECT_EQ(newlines, layout.newline_rows);
  EXPECT_EQ(blocks[1].first_row + blocks[1].rows(), layout.separator_row);
  EXPECT_EQ(blocks[1].first_row, layout.views.back().first_row);
  for (size_t tile = 0; tile < 6; ++tile) {
    EXPECT_EQ(PlaceOf(blocks, layout.views[tile].first_row),
              "tile " + std::to_string(tile + 1) + ", line " + std::to_string(tile / 3 * 10) +
                  ", token " + std::to_string(tile % 3 * 10));
  }
  EXPECT_EQ(PlaceOf(blocks, 30), "local, line 0, newline");
  EXPECT_EQ(PlaceOf(blocks, blocks[1].first_row + 18), "global, line 1, token 1");
  EXPECT_EQ(PlaceOf(blocks, layout.separator_row), "view separator");
}

TEST(ViewCommandTest, ShowsTilesNewlinesAndSeparator) {
  const std::string out = Output("views.png");
  const std::string text = Printed(RunView, {TestImage("page_rgb.jpg"), "--out=" + out});
  EXPECT_THAT(text, HasSubstr("900 x 1200 pixels, mode gundam: 2 x 3 tiles of 640"));
  EXPECT_THAT(text, HasSubstr("rows 0 to 629"));
  EXPECT_THAT(text, HasSubstr("row 902 "));
  EXPECT_THAT(text, HasSubstr("903 rows of 1280"));
  const auto picture = Decode(out);
  ASSERT_TRUE(picture.ok()) << picture.status();
  // Cells of newlines: 30 + 16 of them, and the legend's and the strip's.
  size_t orange = 0, purple = 0;
  for (size_t i = 0; i < picture->bytes(); i += 3) {
    const uint8_t* p = picture->data() + i;
    const Colour colour{p[0], p[1], p[2]};
    orange += colour == kNewlineColour ? 1 : 0;
    purple += colour == kSeparatorColour ? 1 : 0;
  }
  EXPECT_GT(orange, 30U * 30 * 30 + 16U * 50 * 50);
  EXPECT_GT(purple, 500U);
}

TEST(ViewCommandTest, Json) {
  const std::string json = Printed(RunView, {TestImage("small_page.png"), "--mode=tiny", "--json"});
  EXPECT_THAT(json, HasSubstr("\"rows\":73,\"blocks\":[{\"name\":\"global\",\"first_row\":0,"
                              "\"rows\":72,\"lines\":8,\"columns\":8}]"));
  EXPECT_THAT(json, HasSubstr("\"separator_row\":72}"));
}

TEST(ViewCommandTest, WritesTheViewsAsTheyAreEncoded) {
  const std::string folder = Output("folder");
  Printed(RunView, {TestImage("wide.jpg"), "--views-dir=" + folder});
  const auto image = Decode(TestImage("wide.jpg"));
  const auto plan = PlanViews(image->width(), image->height(), kGundam, kDefaultMaxTiles);
  const std::vector<View> views = RenderViews(*image, *plan);
  const auto tile = Decode(folder + "/tile_6.png"), global = Decode(folder + "/global.png");
  ASSERT_TRUE(tile.ok() && global.ok());
  EXPECT_EQ(std::memcmp(tile->data(), views[5].rgb.data(), tile->bytes()), 0);
  EXPECT_EQ(std::memcmp(global->data(), views[6].rgb.data(), global->bytes()), 0);
}

TEST(ViewCommandTest, Failures) {
  EXPECT_EQ(RunView({}), kExitUsage);
  EXPECT_EQ(RunView({"a", "b"}), kExitUsage);
  EXPECT_EQ(RunView({"a", "--mode=huge"}), kExitUsage);
  EXPECT_EQ(RunView({"/no/such/file"}), kExitFailed);
  EXPECT_EQ(RunView({std::string(DEEPENCODER_TEST_DATA) + "/views.json"}), kExitFailed);
  EXPECT_EQ(RunView({TestImage("small_page.png"), "--out=/no/such/folder/a.png"}), kExitFailed);
}

RowsTensor Tensor(int64_t rows, int64_t width, std::vector<float> values) {
  return {"t", "F32", rows, width, std::move(values)};
}

TEST(CompareRowsTest, ByHand) {
  const RowsTensor a = Tensor(3, 2, {3, 4, 1, 0, 0, 0});
  const RowsTensor b = Tensor(3, 2, {3, 4, 0, 1, 0, 0});
  const Difference d = CompareRows(a, b);
  EXPECT_DOUBLE_EQ(d.relative_error, std::sqrt(2.0 / 26));
  EXPECT_THAT(d.row_cosine, ElementsAre(1, 0, 1));
  EXPECT_DOUBLE_EQ(d.row_error[1], std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(d.cosine_mean, 2.0 / 3);
  EXPECT_EQ(d.cosine_min, 0);
  EXPECT_EQ(d.largest, 1);
  EXPECT_EQ(d.largest_row, 1);
  EXPECT_EQ(d.largest_column, 0);
  EXPECT_THAT(WorstRows(d, 2), ElementsAre(1, 0));

  const Difference scaled = CompareRows(Tensor(1, 2, {1, 2}), Tensor(1, 2, {-2, -4}));
  EXPECT_DOUBLE_EQ(scaled.cosine_min, -1);
  EXPECT_DOUBLE_EQ(scaled.relative_error, 3);
  EXPECT_TRUE(std::isinf(CompareRows(Tensor(1, 1, {0}), Tensor(1, 1, {1})).relative_error));
}

TEST(CompareRowsTest, NotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Difference d = CompareRows(Tensor(2, 1, {1, 1}), Tensor(2, 1, {1, nan}));
  EXPECT_EQ(d.not_finite, 1);
  EXPECT_TRUE(std::isnan(d.relative_error));
  EXPECT_THAT(WorstRows(d, 1), ElementsAre(1));
}

Embeddings Rows(DType dtype, int rows, int width, const std::string& data) {
  Embeddings embeddings;
  embeddings.dtype = dtype;
  embeddings.rows = rows;
  embeddings.width = width;
  embeddings.Own(data);
  return embeddings;
}

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(ReadEmbeddingsTest, ReadsWhatEncodeWrites) {
  const std::string half("\x00\x3C\x00\xC0", 4);  // fp16: 1, -2
  const std::string bf16("\x80\x3F\x00\xC0", 4);  // 1, -2
  const Embeddings fp32_rows = Rows(DType::kFp32, 1, 2, Floats({1, -2}));
  const Embeddings fp16_rows = Rows(DType::kFp16, 1, 2, half);
  const Embeddings bf16_rows = Rows(DType::kBf16, 1, 2, bf16);
  const std::string npy = Output("a.npy"), safetensors = Output("a.safetensors");
  for (const Embeddings* rows : {&fp32_rows, &fp16_rows}) {
    ASSERT_TRUE(WriteNpy(npy, *rows).ok());
    const auto read = ReadEmbeddings(npy);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->front().rows, 1);
    EXPECT_THAT(read->front().values, ElementsAre(1, -2));
  }
  ASSERT_TRUE(WriteSafetensors(safetensors, {{"x", &bf16_rows}, {"y", &fp32_rows}}).ok());
  const auto read = ReadEmbeddings(safetensors);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[0].name, "x");
  EXPECT_EQ((*read)[0].type, "BF16");
  EXPECT_THAT((*read)[0].values, ElementsAre(1, -2));
}

std::string Npy(const std::string& header, const std::string& data) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  return file + header + data;
}

TEST(ReadEmbeddingsTest, RefusesBrokenFiles) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
  ASSERT_TRUE(ParseNpy(Npy(good, Floats({1, 2}))).ok());
  const auto error = [](const std::string& file) {
    return std::string(ParseNpy(file).status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("not a .npy"));
  EXPECT_THAT(error(Npy(good, "").substr(0, 30)), HasSubstr("ends early"));
  EXPECT_THAT(error(Npy(good, Floats({1}))), HasSubstr("4 bytes of data"));
  EXPECT_THAT(error(Npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1)}", "12345678")),
              HasSubstr("'<f8' is not"));
  EXPECT_THAT(error(Npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}", "1234")),
              HasSubstr("fortran_order"));
  for (const char* shape :
       {"(2,)", "()", "2", "(2, 1", "(0, 5)", "(2, 3, 4)", "(a, b)", "(99999999999999999999, 1)"}) {
    EXPECT_THAT(
        error(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(shape) + "}",
                  "")),
        HasSubstr("is not rows x width"))
        << shape;
  }
  EXPECT_THAT(
      error(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", "")),
      HasSubstr("bytes of data"));
  EXPECT_EQ(ReadEmbeddings("a.txt").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadEmbeddings("/none.npy").status().code(), absl::StatusCode::kNotFound);
}

TEST(HeatTest, ArrangementsFromTheNumberOfRows) {
  EXPECT_THAT(ArrangementsOf(273), ElementsAre(Arrangement{deepencoder::Mode::kBase, {}}));
  EXPECT_THAT(ArrangementsOf(903), ElementsAre(Arrangement{kGundam, {2, 3}}));
  EXPECT_THAT(ArrangementsOf(2310 + 273),
              ElementsAre(Arrangement{kGundam, {1, 21}}, Arrangement{kGundam, {2, 11}},
                          Arrangement{kGundam, {23, 1}}));
  EXPECT_TRUE(ArrangementsOf(274).empty());
}

TEST(HeatTest, ScaleCoversTheCosines) {
  const HeatScale scale = ScaleFor({1, 1 - 3e-5, 1 - 2e-3});
  EXPECT_EQ(scale.low, -5);
  EXPECT_EQ(scale.high, -2);
  EXPECT_EQ(scale.Place(1), 0);
  EXPECT_NEAR(scale.Place(1 - 1e-3), 2.0 / 3, 1e-6);
  EXPECT_EQ(scale.Place(std::nan("")), 1);
  EXPECT_EQ(ScaleFor({1, 1}).low, HeatScale().low);
}

class DiffCommandTest : public testing::Test {
 protected:
  // 73 rows (mode tiny) of width 4, ones; in B row 10 is turned.
  void SetUp() override {
    std::vector<float> values(size_t{73} * 4, 1.0F);
    const Embeddings a = Rows(DType::kFp32, 73, 4, Floats(values));
    values[10 * 4] = -1.0F;
    const Embeddings b = Rows(DType::kFp32, 73, 4, Floats(values));
    ASSERT_TRUE(WriteNpy(a_, a).ok() && WriteNpy(b_, b).ok());
    ASSERT_TRUE(WriteSafetensors(two_, {{"x", &a}, {"y", &b}}).ok());
  }

  const std::string a_ = Output("left.npy"), b_ = Output("right.npy");
  const std::string two_ = Output("two.safetensors"), heat_ = Output("heat.png");
};

TEST_F(DiffCommandTest, NamesTheWorstRowAndItsPlace) {
  // |B - A|^2 = 4 of |A|^2 = 292.
  const std::string text = Printed(RunDiff, {a_, b_});
  EXPECT_THAT(text, HasSubstr("relative error  0.117"));
  EXPECT_THAT(text, HasSubstr("10  0.50000000            1  global, line 1, token 1"));
  const std::string json = Printed(RunDiff, {a_, b_, "--json", "--worst=1"});
  EXPECT_THAT(json,
              HasSubstr("\"worst_rows\":[{\"row\":10,\"cosine\":0.5,\"relative_error\":1}]}"));
}

TEST_F(DiffCommandTest, Tolerance) {
  EXPECT_EQ(RunDiff({a_, b_, "--tolerance=0.2"}), kExitOk);
  EXPECT_EQ(RunDiff({a_, b_, "--tolerance=0.1"}), kExitFailed);
  EXPECT_EQ(RunDiff({a_, a_, "--tolerance=0"}), kExitOk);
}

TEST_F(DiffCommandTest, DrawsTheTurnedRowBright) {
  Printed(RunDiff, {a_, b_, "--heat=" + heat_, "--height=400"});
  const auto picture = Decode(heat_);
  ASSERT_TRUE(picture.ok()) << picture.status();
  const HeatScale scale = ScaleFor({1, 0.5});
  const std::vector<Block> blocks = BlocksOf(deepencoder::Mode::kTiny, {}, {});
  size_t bright = 0;
  for (size_t i = 0; i < picture->bytes(); i += 3) {
    const uint8_t* p = picture->data() + i;
    bright += Colour{p[0], p[1], p[2]} == scale.Of(0.5) ? 1 : 0;
  }
  const auto cell = static_cast<size_t>(CellSide(blocks.front(), 400));
  EXPECT_GE(bright, (cell - 2) * (cell - 2));
  EXPECT_LE(bright, cell * cell + 200);  // and a little of the scale
  EXPECT_EQ(RunDiff({a_, b_, "--heat=" + heat_, "--image=" + TestImage("small_page.png")}),
            kExitOk);
}

TEST_F(DiffCommandTest, SeveralTensorsByName) {
  EXPECT_THAT(Printed(RunDiff, {two_, two_}), HasSubstr("y  [73, 4]"));
  EXPECT_EQ(RunDiff({two_, two_, "--heat=" + heat_}), kExitFailed);
  EXPECT_EQ(RunDiff({two_, two_, "--heat=" + heat_, "--tensor=y"}), kExitOk);
  EXPECT_EQ(RunDiff({two_, a_}), kExitFailed);
  EXPECT_EQ(RunDiff({two_, two_, "--tensor=z"}), kExitFailed);
}

TEST_F(DiffCommandTest, Failures) {
  EXPECT_EQ(RunDiff({a_}), kExitUsage);
  EXPECT_EQ(RunDiff({a_, b_, "--tolerance=-1"}), kExitUsage);
  EXPECT_EQ(RunDiff({a_, b_, "--image=x"}), kExitUsage);
  EXPECT_EQ(RunDiff({a_, "/none.npy"}), kExitFailed);
  ASSERT_TRUE(WriteNpy(b_, Rows(DType::kFp32, 1, 2, Floats({1, 2}))).ok());
  EXPECT_EQ(RunDiff({a_, b_}), kExitFailed);
}

}  // namespace
}  // namespace deepencoder::client
