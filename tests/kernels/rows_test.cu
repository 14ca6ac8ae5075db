// The kernels around the products, against plain loops on the host: norms, gathers, reply rows, CLIP's rows.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "encoder/base/dtype.h"
#include "kernels/clip_rows.h"
#include "kernels/layer_norm.h"
#include "kernels/patches.h"
#include "kernels/reply_rows.h"
#include "tests/kernels/gpu_test.h"

namespace deepencoder::kernels {
namespace {

using RowsTest = testing::GpuTest;

// Host values of a type, with their copy on the device; NaN bits until written.
class Values {
 public:
  Values(DType type, size_t count) : type_(type), count_(count) {
    EXPECT_EQ(cudaMalloc(&device_, bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemset(device_, 0xFF, bytes()), cudaSuccess);
  }
  Values(DType type, const std::vector<float>& values) : Values(type, values.size()) {
    std::vector<std::byte> stored(bytes());
    Convert(values.data(), type, stored.data(), count_);
    EXPECT_EQ(cudaMemcpy(device_, stored.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  ~Values() { cudaFree(device_); }

  void* data() const { return device_; }
  float* floats() const { return static_cast<float*>(device_); }
  size_t bytes() const { return count_ * SizeOf(type_); }
  std::vector<float> Read() const {
    std::vector<std::byte> stored(bytes());
    EXPECT_EQ(cudaMemcpy(stored.data(), device_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    std::vector<float> values(count_);
    ConvertToFloat(type_, stored.data(), values.data(), count_);
    return values;
  }

 private:
  DType type_;
  size_t count_;
  void* device_ = nullptr;
};

// Rounded to `type`, so that host and device start from the same numbers.
std::vector<float> Random(DType type, size_t count, int seed, float scale = 1.f,
                          float offset = 0.f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = RoundTo(type, offset + scale * normal(engine));
  return values;
}

double Roundoff(DType type) {
  return type == DType::kBf16 ? 0x1p-8 : type == DType::kFp16 ? 0x1p-11 : 0x1p-20;
}

void ExpectClose(const std::vector<float>& got, const std::vector<double>& want, DType type,
                 double scale = 1.0) {
  ASSERT_EQ(got.size(), want.size());
  size_t wrong = 0;
  for (size_t i = 0; i < got.size() && wrong < 5; ++i) {
    const double bound = Roundoff(type) * (std::abs(want[i]) + 0.02 * scale) + 1e-5 * scale;
    if (std::abs(got[i] - want[i]) <= bound) continue;  // false for NaN
    ADD_FAILURE() << "element " << i << ": " << got[i] << ", expected " << want[i] << " +- "
                  << bound;
    ++wrong;
  }
}

std::vector<double> NormRow(const std::vector<double>& row, const float* weight, const float* bias,
                            double eps) {
  double mean = 0, variance = 0;
  for (const double value : row) mean += value / row.size();
  for (const double value : row) variance += (value - mean) * (value - mean) / row.size();
  std::vector<double> out(row.size());
  for (size_t i = 0; i < row.size(); ++i)
    out[i] = (row[i] - mean) / std::sqrt(variance + eps) * weight[i] + bias[i];
  return out;
}

struct NormCase {
  DType x, y;
  int width, rows;
  bool add;
  float spread;  // of x: near sqrt(eps) a wrong eps shows
};

TEST_F(RowsTest, LayerNorm) {
  const NormCase cases[] = {{DType::kBf16, DType::kBf16, 768, 37, false, 1.f},
                            {DType::kFp16, DType::kFp16, 768, 64, true, 1.f},
                            {DType::kBf16, DType::kBf16, 256, 5, true, 1.f},
                            {DType::kFp32, DType::kBf16, 1024, 257, false, 3.f},
                            {DType::kFp32, DType::kFp16, 1024, 1, true, 0.003f},
                            {DType::kFp32, DType::kFp16, 256, 9, false, 0.001f},
                            {DType::kFp16, DType::kFp16, 1024, 3, false, 0.003f},
                            {DType::kBf16, DType::kBf16, 768, 5001, true, 1.f},
                            {DType::kFp32, DType::kBf16, 1024, 5001, false, 3.f}};
  for (const NormCase& c : cases) {
    const size_t count = static_cast<size_t>(c.rows) * c.width;
    const int add_rows = c.rows > 2 ? c.rows / 2 : 1;
    const auto x = Random(c.x, count, 1, c.spread, 0.1f),
               add = Random(c.x, size_t(add_rows) * c.width, 2, c.spread);
    const auto weight = Random(DType::kFp32, c.width, 3, 0.2f, 1.f),
               bias = Random(DType::kFp32, c.width, 4, 0.2f);
    const Values dx(c.x, x), dadd(c.x, add), dweight(DType::kFp32, weight),
        dbias(DType::kFp32, bias);
    const Values sum(c.x, count), y(c.y, count);
    const float eps = 1e-6f;
    ASSERT_OK(LaunchLayerNorm({.x_type = c.x,
                               .y_type = c.y,
                               .rows = c.rows,
                               .width = c.width,
                               .x = dx.data(),
                               .add = c.add ? dadd.data() : nullptr,
                               .add_rows = c.add ? add_rows : 0,
                               .sum = sum.data(),
                               .weight = dweight.floats(),
                               .bias = dbias.floats(),
                               .eps = eps,
                               .y = y.data()},
                              nullptr));
    std::vector<double> want_sum, want;
    for (int r = 0; r < c.rows; ++r) {
      std::vector<double> row(c.width);
      for (int i = 0; i < c.width; ++i) {
        row[i] = x[size_t(r) * c.width + i] +
                 (c.add ? double(add[size_t(r % add_rows) * c.width + i]) : 0.0);
      }
      want_sum.insert(want_sum.end(), row.begin(), row.end());
      const auto normed = NormRow(row, weight.data(), bias.data(), eps);
      want.insert(want.end(), normed.begin(), normed.end());
    }
    ExpectClose(sum.Read(), want_sum, c.x, c.spread);
    ExpectClose(y.Read(), want, c.y);
  }
}

TEST_F(RowsTest, LayerNormInPlace) {
  const auto x = Random(DType::kBf16, 16 * 256, 1), one = std::vector<float>(256, 1.f),
             zero = std::vector<float>(256);
  const Values dx(DType::kBf16, x), apart(DType::kBf16, x.size()), weight(DType::kFp32, one),
      bias(DType::kFp32, zero);
  LayerNormArgs args{.rows = 16,
                     .width = 256,
                     .x = dx.data(),
                     .weight = weight.floats(),
                     .bias = bias.floats(),
                     .eps = 1e-6f,
                     .y = apart.data()};
  ASSERT_OK(LaunchLayerNorm(args, nullptr));
  args.y = dx.data();
  ASSERT_OK(LaunchLayerNorm(args, nullptr));
  EXPECT_EQ(dx.Read(), apart.Read());
}

TEST_F(RowsTest, ClipEmbed) {
  for (const DType type : {DType::kBf16, DType::kFp16}) {
    const int batch = 3, tokens = 5, width = 1024;
    const auto features = Random(type, size_t(batch) * (tokens - 1) * width, 1),
               row = Random(type, width, 2);
    const auto positions = Random(type, size_t(tokens) * width, 3);
    const auto weight = Random(DType::kFp32, width, 4, 0.2f, 1.f),
               bias = Random(DType::kFp32, width, 5);
    const Values df(type, features), dr(type, row), dp(type, positions), dw(DType::kFp32, weight),
        db(DType::kFp32, bias);
    for (const DType y_type : {DType::kFp32, type}) {
      const Values y(y_type, size_t(batch) * tokens * width);
      ASSERT_OK(LaunchClipEmbed({.type = type,
                                 .y_type = y_type,
                                 .batch = batch,
                                 .tokens = tokens,
                                 .features = df.data(),
                                 .class_row = dr.data(),
                                 .positions = dp.data(),
                                 .weight = dw.floats(),
                                 .bias = db.floats(),
                                 .eps = 1e-5f,
                                 .y = y.data()},
                                nullptr));
      std::vector<double> want;
      for (int b = 0; b < batch; ++b)
        for (int t = 0; t < tokens; ++t) {
          std::vector<double> sum(width);
          for (int i = 0; i < width; ++i) {
            const float base =
                t == 0 ? row[i] : features[(size_t(b) * (tokens - 1) + t - 1) * width + i];
            sum[i] = double(base) + positions[size_t(t) * width + i];
          }
          const auto normed = NormRow(sum, weight.data(), bias.data(), 1e-5);
          want.insert(want.end(), normed.begin(), normed.end());
        }
      ExpectClose(y.Read(), want, y_type);
    }
  }
}

TEST_F(RowsTest, ViewPatches) {
  const int side = 48, batch = 2, grid = side / 16;
  std::mt19937 engine(7);
  std::vector<std::vector<uint8_t>> views(batch, std::vector<uint8_t>(side * side * 3));
  std::vector<uint8_t*> pointers(batch);
  for (int b = 0; b < batch; ++b) {
    for (uint8_t& value : views[b]) value = static_cast<uint8_t>(engine());
    for (int v = 0; v < 256; ++v)
      views[b][v] = static_cast<uint8_t>(v);  // every value at least once
    ASSERT_EQ(cudaMalloc(&pointers[b], views[b].size()), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(pointers[b], views[b].data(), views[b].size(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  uint8_t** table = nullptr;
  ASSERT_EQ(cudaMalloc(&table, batch * sizeof(*table)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(table, pointers.data(), batch * sizeof(*table), cudaMemcpyHostToDevice),
            cudaSuccess);
  for (const DType type : {DType::kBf16, DType::kFp16}) {
    const Values patches(type, size_t(batch) * grid * grid * 768);
    ASSERT_OK(LaunchViewPatches(
        {.type = type, .batch = batch, .side = side, .views = table, .patches = patches.data()},
        nullptr));
    const std::vector<float> got = patches.Read();
    size_t at = 0, wrong = 0;
    for (int b = 0; b < batch; ++b)
      for (int p = 0; p < grid * grid; ++p)
        for (int ky = 0; ky < 16; ++ky)
          for (int kx = 0; kx < 16; ++kx)
            for (int c = 0; c < 3; ++c, ++at) {
              const float v = views[b][((p / grid * 16 + ky) * side + p % grid * 16 + kx) * 3 + c];
              wrong += got[at] != RoundTo(type, (v / 255.f - 0.5f) / 0.5f);
            }
    EXPECT_EQ(wrong, 0u);
  }
  for (uint8_t* pointer : pointers) cudaFree(pointer);
  cudaFree(table);
}

TEST_F(RowsTest, ConvPatches) {
  for (const int stride : {1, 2}) {
    const int batch = 2, grid = 6, channels = 16, out = (grid - 1) / stride + 1;
    const auto x = Random(DType::kFp16, size_t(batch) * grid * grid * channels, 8);
    const Values dx(DType::kFp16, x),
        patches(DType::kFp16, size_t(batch) * out * out * 9 * channels);
    ASSERT_OK(LaunchConvPatches({.type = DType::kFp16,
                                 .batch = batch,
                                 .grid = grid,
                                 .channels = channels,
                                 .stride = stride,
                                 .x = dx.data(),
                                 .patches = patches.data()},
                                nullptr));
    std::vector<float> want;
    for (int b = 0; b < batch; ++b)
      for (int oy = 0; oy < out; ++oy)
        for (int ox = 0; ox < out; ++ox)
          for (int ky = 0; ky < 3; ++ky)
            for (int kx = 0; kx < 3; ++kx)
              for (int c = 0; c < channels; ++c) {
                const int y = oy * stride + ky - 1, xx = ox * stride + kx - 1;
                const bool inside = y >= 0 && y < grid && xx >= 0 && xx < grid;
                want.push_back(inside ? x[((size_t(b) * grid + y) * grid + xx) * channels + c]
                                      : 0.f);
              }
    EXPECT_EQ(patches.Read(), want);
  }
}

TEST_F(RowsTest, ReplyRows) {
  const int batch = 3;
  const size_t elements = 2 * 1280 + 8;
  const auto rows = Random(DType::kFp32, batch * elements, 9);
  const Values drows(DType::kFp32, rows), packed(DType::kFp32, batch * elements);
  const DType types[batch] = {DType::kBf16, DType::kFp32, DType::kFp16};
  ReplyPlace places[batch];
  int64_t offset = 0;
  for (int b = 0; b < batch; ++b) {
    places[b] = {offset, types[b]};
    offset += static_cast<int64_t>(elements * SizeOf(types[b]));
  }
  ReplyPlace* table = nullptr;
  ASSERT_EQ(cudaMalloc(&table, sizeof(places)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(table, places, sizeof(places), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_OK(LaunchReplyRows({.batch = batch,
                             .elements = static_cast<int64_t>(elements),
                             .rows = drows.floats(),
                             .places = table,
                             .packed = packed.data()},
                            nullptr));
  std::vector<std::byte> got(offset);
  ASSERT_EQ(cudaMemcpy(got.data(), packed.data(), got.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  cudaFree(table);
  for (int b = 0; b < batch; ++b) {
    std::vector<float> values(elements);
    ConvertToFloat(types[b], got.data() + places[b].offset, values.data(), elements);
    for (size_t i = 0; i < elements; ++i)
      ASSERT_EQ(values[i], RoundTo(types[b], rows[b * elements + i])) << b << ' ' << i;
  }
}

TEST_F(RowsTest, ClipRows) {
  const int batch = 2, tokens = 4;
  const auto x = Random(DType::kFp32, size_t(batch) * tokens * 1024, 10);
  const Values dx(DType::kFp32, x), y(DType::kBf16, size_t(batch) * (tokens - 1) * 1024);
  ASSERT_OK(LaunchClipRows(
      {.type = DType::kBf16, .batch = batch, .tokens = tokens, .x = dx.floats(), .y = y.data()},
      nullptr));
  std::vector<float> want;
  for (int b = 0; b < batch; ++b)
    for (size_t i = 1024; i < size_t(tokens) * 1024; ++i)
      want.push_back(RoundTo(DType::kBf16, x[size_t(b) * tokens * 1024 + i]));
  EXPECT_EQ(y.Read(), want);
}

TEST_F(RowsTest, RefusesBadArguments) {
  const Values values(DType::kFp32, 4096);
  const auto refused = [](const Status& status, const char* word) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  };
  LayerNormArgs norm{.rows = 1,
                     .width = 768,
                     .x = values.data(),
                     .weight = values.floats(),
                     .bias = values.floats(),
                     .eps = 1e-6f,
                     .y = values.data()};
  auto bad = norm;
  bad.width = 512;
  refused(LaunchLayerNorm(bad, nullptr), "width");
  bad = norm, bad.x = nullptr;
  refused(LaunchLayerNorm(bad, nullptr), "null");
  bad = norm, bad.x = static_cast<char*>(values.data()) + 4;
  refused(LaunchLayerNorm(bad, nullptr), "aligned");
  bad = norm, bad.rows = 0;
  refused(LaunchLayerNorm(bad, nullptr), "rows");
  bad = norm, bad.y_type = DType::kFp32;
  refused(LaunchLayerNorm(bad, nullptr), "fp32");
  bad = norm, bad.add = values.data();
  refused(LaunchLayerNorm(bad, nullptr), "add_rows");
  refused(LaunchConvPatches(
              {.batch = 1, .grid = 4, .channels = 12, .x = values.data(), .patches = values.data()},
              nullptr),
          "channels");
  refused(LaunchViewPatches({.batch = 1,
                             .side = 40,
                             .views = static_cast<const uint8_t* const*>(values.data()),
                             .patches = values.data()},
                            nullptr),
          "side");
  refused(LaunchViewPatches({.type = DType::kFp32, .batch = 1, .side = 32}, nullptr), "bf16");
  refused(
      LaunchClipRows({.batch = 1, .tokens = 1, .x = values.floats(), .y = values.data()}, nullptr),
      "tokens");
  refused(LaunchReplyRows({.batch = 1, .elements = 12, .rows = values.floats()}, nullptr),
          "elements");
}

}  // namespace
}  // namespace deepencoder::kernels
