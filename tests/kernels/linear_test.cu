// Dense layers against a host reference in fp64, through cuBLASLt alone, through our own kernel alone,
// and as chosen by measurement.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "encoder/base/dtype.h"
#include "kernels/linear.h"
#include "kernels/linear_activation.h"
#include "tests/kernels/gpu_test.h"

namespace deepencoder::kernels {
namespace {

int ComputeCapability() {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major;
}

// Largest relative error of rounding to a type.
double Epsilon(DType type) {
  switch (type) {
    case DType::kBf16:
      return 0x1p-8;
    case DType::kFp16:
      return 0x1p-11;
    case DType::kFp32:
      break;
  }
  return 0x1p-24;
}

uint16_t ToBits(DType type, float value) {
  return type == DType::kBf16 ? FloatToBf16(value) : FloatToFp16(value);
}
float FromBits(DType type, uint16_t bits) {
  return type == DType::kBf16 ? Bf16ToFloat(bits) : Fp16ToFloat(bits);
}

double Gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double QuickGelu(double x) { return x / (1.0 + std::exp(-1.702 * x)); }
double Activate(Epilogue epilogue, double x) {
  switch (epilogue) {
    case Epilogue::kGelu:
      return Gelu(x);
    case Epilogue::kQuickGelu:
      return QuickGelu(x);
    case Epilogue::kNone:
      break;
  }
  return x;
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  // Uniform in [-1, 1).
  float Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f;
  }

 private:
  uint64_t state_;
};

// Device memory with a host copy. Every byte starts as 0xFF: a NaN in every type.
class Buffer {
 public:
  ~Buffer() { cudaFree(device_); }
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void Resize(size_t bytes) {
    host_.assign(bytes, 0xFF);
    ASSERT_CUDA(cudaMalloc(&device_, std::max<size_t>(bytes, 16)));
    Upload();
  }
  void Poison() {
    std::fill(host_.begin(), host_.end(), 0xFF);
    Upload();
  }
  void Upload() { ASSERT_CUDA(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyDefault)); }
  void Download() {
    ASSERT_CUDA(cudaMemcpy(host_.data(), device_, host_.size(), cudaMemcpyDefault));
  }
  template <typename T>
  T* host() {
    return reinterpret_cast<T*>(host_.data());
  }
  void* device() const { return device_; }
  const std::vector<unsigned char>& bytes() const { return host_; }
  size_t size() const { return host_.size(); }

 private:
  std::vector<unsigned char> host_;
  void* device_ = nullptr;
};

enum class Path { kCublas, kOwn, kMeasured };

std::unique_ptr<LinearContext> MakeContext(Path path) {
  LinearContext::Options options;
  options.use_cublas = path != Path::kOwn;
  options.use_own = path != Path::kCublas;
  options.measure = path == Path::kMeasured;
  options.cublas_candidates = path == Path::kMeasured ? 8 : 1;
  std::unique_ptr<LinearContext> context;
  const Status status = LinearContext::Create(options, &context);
  EXPECT_TRUE(status.ok()) << status.message();
  return context;
}

// A layer with random inputs on host and device, its output, and what it must be.
class Layer {
 public:
  Layer(const LinearShape& shape, bool in_place) : shape_(shape), in_place_(in_place) {}

  // Fills in the strides that the shape leaves at 0, as Create does.
  void Init(uint64_t seed) {
    if (shape_.ldx == 0) shape_.ldx = shape_.k;
    if (shape_.ldx2 == 0) shape_.ldx2 = shape_.k2;
    if (shape_.ldy == 0) shape_.ldy = shape_.n;
    if (shape_.ldr == 0) shape_.ldr = shape_.n;
    const int groups = shape_.group_rows == 0 ? 1 : shape_.m / shape_.group_rows;
    const int64_t group_rows = shape_.m / groups;
    x_.Resize(((groups - 1) * shape_.group_stride + group_rows * shape_.ldx) * 2);
    x2_.Resize(shape_.m * shape_.ldx2 * 2);
    weight_.Resize(int64_t{shape_.n} * (shape_.k + shape_.k2) * 2);
    bias_.Resize(shape_.n * 2);
    residual_.Resize(shape_.m * shape_.ldr * SizeOf(shape_.y_type));
    y_.Resize(shape_.m * shape_.ldy * SizeOf(shape_.y_type));
    Refill(seed);
  }

  // New inputs. Gaps between rows keep their NaN: nothing may read them.
  void Refill(uint64_t seed) {
    Random random(seed);
    for (int r = 0; r < shape_.m; ++r) {
      for (int i = 0; i < shape_.k; ++i) x_.host<uint16_t>()[XAt(r) + i] = Bits(random.Next());
      for (int i = 0; i < shape_.k2; ++i) {
        x2_.host<uint16_t>()[r * shape_.ldx2 + i] = Bits(random.Next());
      }
      for (int i = 0; i < shape_.n; ++i) SetResidual(r, i, 2.0f * random.Next());
    }
    // Sums come out near 1 in size, where the activations bend.
    const float scale = std::sqrt(9.0f / static_cast<float>(shape_.k + shape_.k2));
    const int64_t weights = int64_t{shape_.n} * (shape_.k + shape_.k2);
    for (int64_t i = 0; i < weights; ++i) weight_.host<uint16_t>()[i] = Bits(scale * random.Next());
    for (int i = 0; i < shape_.n; ++i) bias_.host<uint16_t>()[i] = Bits(random.Next());
    for (Buffer* buffer : {&x_, &x2_, &weight_, &bias_, &residual_}) buffer->Upload();
    y_.Poison();
    if (in_place_) {
      std::memcpy(y_.host<char>(), residual_.host<char>(), y_.size());
      y_.Upload();
    }
  }

  LinearBuffers buffers() const {
    LinearBuffers buffers;
    buffers.x = x_.device();
    buffers.x2 = shape_.k2 == 0 ? nullptr : x2_.device();
    buffers.weight = weight_.device();
    buffers.bias = shape_.bias ? bias_.device() : nullptr;
    if (shape_.residual) buffers.residual = in_place_ ? y_.device() : residual_.device();
    buffers.y = y_.device();
    return buffers;
  }

  // Checks up to `rows` rows, the last ones among them, and that nothing lies between rows.
  // `roundings`: how often y may have been rounded to its type on the way.
  void Check(int rows, int roundings) {
    y_.Download();
    const int step = std::max(1, shape_.m / rows);
    for (int r = shape_.m - 1; r >= 0; r -= step) {
      for (int i = 0; i < shape_.n; ++i) {
        double magnitude = 0, first = 0;
        const double before = Sum(r, i, &magnitude, &first);
        double expected = Activate(shape_.epilogue, before);
        if (shape_.residual) expected += Residual(r, i);
        // y's roundings act on numbers up to the largest of the sum, each operand's part of it and
        // the result; fp32 accumulation errs by at most some 2^-22 of the sum of absolute values;
        // activations by 2e-7.
        double largest = std::max({std::fabs(before), std::fabs(expected), 0x1p-14});
        if (roundings > 1) {
          largest = std::max({largest, std::fabs(first), std::fabs(before - first)});
        }
        const double tolerance =
            1.05 * roundings * Epsilon(shape_.y_type) * largest + 0x1p-21 * magnitude + 2e-7;
        ASSERT_NEAR(expected, Y(r, i), tolerance) << "row " << r << " column " << i;
      }
    }
    for (int r = 0; r < shape_.m; r += step) {
      for (int64_t i = shape_.n; i < shape_.ldy; ++i) {
        if (!in_place_) ASSERT_TRUE(std::isnan(Y(r, i))) << "gap of row " << r << " was written";
      }
    }
  }

  Buffer& y() { return y_; }

 private:
  uint16_t Bits(float value) const { return ToBits(shape_.type, value); }
  int64_t XAt(int r) const {
    if (shape_.group_rows == 0) return r * shape_.ldx;
    return r / shape_.group_rows * shape_.group_stride + r % shape_.group_rows * shape_.ldx;
  }
  void SetResidual(int r, int i, float value) {
    const int64_t at = r * shape_.ldr + i;
    if (shape_.y_type == DType::kFp32) {
      residual_.host<float>()[at] = value;
    } else {
      residual_.host<uint16_t>()[at] = Bits(value);
    }
  }
  float At(Buffer& buffer, int64_t at) {
    return shape_.y_type == DType::kFp32 ? buffer.host<float>()[at]
                                         : FromBits(shape_.type, buffer.host<uint16_t>()[at]);
  }
  float Residual(int r, int64_t i) { return At(residual_, r * shape_.ldr + i); }
  float Y(int r, int64_t i) { return At(y_, r * shape_.ldy + i); }

  // `first` is the sum without the second operand.
  double Sum(int r, int i, double* magnitude, double* first) {
    const uint16_t* const w = weight_.host<uint16_t>() + int64_t{i} * (shape_.k + shape_.k2);
    double sum = shape_.bias ? FromBits(shape_.type, bias_.host<uint16_t>()[i]) : 0.0;
    *magnitude = std::fabs(sum);
    const auto add = [&](uint16_t a, uint16_t b) {
      const double product =
          static_cast<double>(FromBits(shape_.type, a)) * FromBits(shape_.type, b);
      sum += product;
      *magnitude += std::fabs(product);
    };
    for (int j = 0; j < shape_.k; ++j) add(x_.host<uint16_t>()[XAt(r) + j], w[j]);
    *first = sum;
    for (int j = 0; j < shape_.k2; ++j) {
      add(x2_.host<uint16_t>()[r * shape_.ldx2 + j], w[shape_.k + j]);
    }
    return sum;
  }

  LinearShape shape_;
  bool in_place_;
  Buffer x_, x2_, weight_, bias_, residual_, y_;
};

struct Case {
  const char* name;
  LinearShape shape;
  bool in_place = false;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"Plain", {.m = 1000, .n = 768, .k = 768}},
      {"NoBias", {.m = 257, .n = 256, .k = 768, .bias = false}},
      {"OneRow", {.m = 1, .n = 768, .k = 768}},
      {"Rows65", {.m = 65, .n = 3072, .k = 1024}},
      {"Rows401", {.m = 401, .n = 1024, .k = 4096}},
      {"Many", {.m = 4096, .n = 2304, .k = 768}},
      {"Neck", {.m = 1024, .n = 256, .k = 2304, .bias = false}},
      {"SmallestSizes", {.m = 3, .n = 8, .k = 8}},
      {"OddTiles", {.m = 130, .n = 200, .k = 72}},
      {"Gelu", {.m = 1000, .n = 3072, .k = 768, .epilogue = Epilogue::kGelu}},
      {"QuickGelu", {.m = 257, .n = 4096, .k = 1024, .epilogue = Epilogue::kQuickGelu}},
      {"GeluStrided", {.m = 300, .n = 256, .k = 128, .ldy = 320, .epilogue = Epilogue::kGelu}},
      {"Residual", {.m = 1000, .n = 768, .k = 768, .residual = true}},
      {"ResidualInPlace", {.m = 1000, .n = 768, .k = 3072, .residual = true}, true},
      {"ResidualStrided", {.m = 257, .n = 768, .k = 768, .ldr = 776, .residual = true}},
      {"Fp32", {.y_type = DType::kFp32, .m = 401, .n = 768, .k = 768}},
      {"Fp32Residual", {.y_type = DType::kFp32, .m = 1000, .n = 768, .k = 768, .residual = true}},
      {"Fp32ResidualInPlace",
       {.y_type = DType::kFp32, .m = 1000, .n = 1024, .k = 1024, .residual = true},
       true},
      {"Strided", {.m = 257, .n = 768, .k = 256, .ldx = 768, .ldy = 1024}},
      {"TwoOperands", {.m = 1000, .n = 1280, .k = 1024, .k2 = 1024}},
      {"TwoOperandsPassingClassToken",
       {.m = 3 * 256,
        .n = 1280,
        .k = 1024,
        .k2 = 1024,
        .group_rows = 256,
        .group_stride = 257 * 1024}},
      {"TwoOperandsOddGroups",
       {.m = 5 * 100,
        .n = 1280,
        .k = 1024,
        .k2 = 1024,
        .group_rows = 100,
        .group_stride = 101 * 1024}},
      {"GroupsResidual",
       {.m = 4 * 70,
        .n = 256,
        .k = 128,
        .group_rows = 70,
        .group_stride = 71 * 128,
        .residual = true}},
  };
  return cases;
}

class LinearTest : public ::testing::TestWithParam<std::tuple<Path, DType, Case>> {
 protected:
  void SetUp() override {
    REQUIRE_GPU();
    if (std::get<0>(GetParam()) == Path::kOwn && ComputeCapability() != 9) {
      GTEST_SKIP() << "our own kernel needs a Hopper GPU";
    }
  }
};

TEST_P(LinearTest, MatchesReference) {
  const auto& [path, type, test] = GetParam();
  LinearShape shape = test.shape;
  shape.type = type;
  if (shape.y_type != DType::kFp32) shape.y_type = type;
  const auto context = MakeContext(path);
  ASSERT_NE(nullptr, context);
  Linear linear;
  const Status status = Linear::Create(*context, shape, &linear);
  if (path == Path::kOwn && status.code() == Code::kUnsupported) GTEST_SKIP() << status.message();
  ASSERT_OK(status);
  SCOPED_TRACE(linear.algorithm());
  context->ReleaseScratch();
  Layer layer(shape, test.in_place);
  layer.Init(7);
  Buffer workspace;  // NaN, and not zero, at the first launch
  workspace.Resize(linear.workspace_bytes());
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreate(&stream));

  ASSERT_OK(linear.Launch(layer.buffers(), workspace.device(), workspace.size(), stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  // cuBLASLt rounds once more before an activation or an addition, twice with a second operand.
  const int roundings = path == Path::kOwn ? 1 : (shape.k2 == 0 ? 2 : 3);
  layer.Check(40, roundings);
  const std::vector<unsigned char> first = layer.y().bytes();

  // The same inputs give the same bits, whatever the workspace holds.
  layer.Refill(7);
  ASSERT_OK(linear.Launch(layer.buffers(), workspace.device(), workspace.size(), stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  layer.y().Download();
  EXPECT_EQ(first, layer.y().bytes());

  // In a graph, replayed with other inputs.
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  ASSERT_OK(linear.Launch(layer.buffers(), workspace.device(), workspace.size(), stream));
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  layer.Refill(8);
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  layer.Check(10, roundings);
  layer.Refill(7);
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  layer.y().Download();
  EXPECT_EQ(first, layer.y().bytes());
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

std::string CaseName(const ::testing::TestParamInfo<LinearTest::ParamType>& info) {
  const auto& [path, type, test] = info.param;
  const char* const paths[] = {"Cublas", "Own", "Measured"};
  return std::string(paths[static_cast<int>(path)]) + (type == DType::kBf16 ? "Bf16" : "Fp16") +
         test.name;
}

INSTANTIATE_TEST_SUITE_P(
    All, LinearTest,
    ::testing::Combine(::testing::Values(Path::kCublas, Path::kOwn, Path::kMeasured),
                       ::testing::Values(DType::kBf16, DType::kFp16), ::testing::ValuesIn(Cases())),
    CaseName);

// The activations alone, on every finite number of the type.
class ActivationTest : public ::testing::TestWithParam<std::tuple<DType, Epilogue>> {};

TEST_P(ActivationTest, IsExactOnEveryInput) {
  REQUIRE_GPU();
  const auto [type, epilogue] = GetParam();
  constexpr int kCount = 1 << 16;
  std::vector<float> inputs;
  Buffer y;
  y.Resize(kCount * 2);
  for (int i = 0; i < kCount; ++i) y.host<uint16_t>()[i] = static_cast<uint16_t>(i);
  y.Upload();
  ASSERT_OK(LaunchActivation(type, 64, kCount / 64, y.device(), kCount / 64, epilogue, nullptr));
  y.Download();
  for (int i = 0; i < kCount; ++i) {
    const double x = FromBits(type, static_cast<uint16_t>(i));
    const double result = FromBits(type, y.host<uint16_t>()[i]);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(result)) << "bits " << i;
      continue;
    }
    if (std::isinf(x)) continue;  // inf * 0 is not a number in the model either
    const double exact = Activate(epilogue, x);
    if (std::fabs(exact) > 3e38) continue;
    // Half a unit in the last place, and the error of the fp32 value itself.
    const double tolerance =
        1.001 * Epsilon(type) * std::fabs(exact) + 2e-7 + std::fabs(exact) * 0x1p-21;
    ASSERT_NEAR(exact, result, tolerance) << "x " << x;
  }
}

// The same in fp32, where nothing hides the error.
TEST_P(ActivationTest, IsWithin2e7InFp32) {
  REQUIRE_GPU();
  const auto [type, epilogue] = GetParam();
  constexpr int kCount = 1 << 20;
  Buffer y;
  y.Resize(kCount * 4);
  std::vector<float> inputs(kCount);
  for (int i = 0; i < kCount; ++i) inputs[i] = (static_cast<float>(i) / kCount - 0.5f) * 24.0f;
  std::memcpy(y.host<char>(), inputs.data(), y.size());
  y.Upload();
  ASSERT_OK(LaunchActivation(DType::kFp32, 1024, 1024, y.device(), 1024, epilogue, nullptr));
  y.Download();
  for (int i = 0; i < kCount; ++i) {
    const double exact = Activate(epilogue, inputs[i]);
    ASSERT_NEAR(exact, y.host<float>()[i], 2e-7 + std::fabs(exact) * 0x1p-21) << "x " << inputs[i];
  }
}

INSTANTIATE_TEST_SUITE_P(All, ActivationTest,
                         ::testing::Combine(::testing::Values(DType::kBf16, DType::kFp16),
                                            ::testing::Values(Epilogue::kGelu,
                                                              Epilogue::kQuickGelu)));

class LinearChecksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    REQUIRE_GPU();
    context_ = MakeContext(Path::kCublas);
    ASSERT_NE(nullptr, context_);
  }
  // The message of the error that Create must answer a shape with.
  std::string CreateError(const LinearShape& shape) {
    Linear linear;
    const Status status = Linear::Create(*context_, shape, &linear);
    EXPECT_EQ(Code::kInvalidArgument, status.code());
    return status.message();
  }
  std::unique_ptr<LinearContext> context_;
};

bool Contains(const std::string& text, const char* part) { return text.find(part) != text.npos; }

TEST_F(LinearChecksTest, ShapesAreChecked) {
  const LinearShape good{.m = 64, .n = 64, .k = 64};
  const auto with = [&](auto change) {
    LinearShape shape = good;
    change(shape);
    return CreateError(shape);
  };
  EXPECT_TRUE(Contains(with([](auto& s) { s.m = 0; }), "m is 0"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.n = 12; }), "n is 12, must be a multiple of 8"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.k = 12; }), "k is 12, must be a multiple of 8"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.k2 = 4; }), "k2 is 4"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.k = -8; }), "k is -8"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.ldx = 56; }), "ldx is 56"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.ldx = 65; }), "ldx is 65, must be a multiple of 8"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.ldy = 60; }), "ldy is 60"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.residual = true, s.ldr = 8; }), "ldr is 8"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.type = DType::kFp32; }), "type must be bf16 or fp16"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.y_type = DType::kFp16; }), "y_type must be"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.group_rows = 7, s.group_stride = 4096; }),
                       "group_rows is 7, must divide m"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.group_rows = 32, s.group_stride = 64; }),
                       "group_stride is 64"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.group_stride = 64; }), "without group_rows"));
  EXPECT_TRUE(
      Contains(with([](auto& s) { s.epilogue = Epilogue::kGelu, s.residual = true; }), "residual"));
  EXPECT_TRUE(Contains(with([](auto& s) { s.epilogue = Epilogue::kGelu, s.y_type = DType::kFp32; }),
                       "fp32"));
}

TEST_F(LinearChecksTest, BuffersAreChecked) {
  Linear linear;
  ASSERT_OK(Linear::Create(*context_, {.m = 64, .n = 64, .k = 64}, &linear));
  Layer layer({.m = 64, .n = 64, .k = 64}, false);
  layer.Init(1);
  Buffer workspace;
  workspace.Resize(linear.workspace_bytes());
  const LinearBuffers good = layer.buffers();
  const auto with = [&](auto change) {
    LinearBuffers buffers = good;
    change(buffers);
    const Status status = linear.Launch(buffers, workspace.device(), workspace.size(), nullptr);
    EXPECT_EQ(Code::kInvalidArgument, status.code());
    return status.message();
  };
  EXPECT_TRUE(Contains(with([](auto& b) { b.x = nullptr; }), "x is null"));
  EXPECT_TRUE(Contains(with([](auto& b) { b.weight = nullptr; }), "weight is null"));
  EXPECT_TRUE(Contains(with([](auto& b) { b.bias = nullptr; }), "bias is null"));
  EXPECT_TRUE(Contains(with([](auto& b) { b.y = nullptr; }), "y is null"));
  EXPECT_TRUE(Contains(with([](auto& b) { b.x = static_cast<const char*>(b.x) + 8; }), "x is not"));
  EXPECT_TRUE(Contains(with([](auto& b) { b.y = static_cast<char*>(b.y) + 2; }), "y is not"));
  EXPECT_TRUE(Contains(with([](auto& b) { b.x2 = b.x; }), "x2 is given"));
  EXPECT_TRUE(Contains(with([](auto& b) { b.residual = b.y; }), "residual is given"));
  EXPECT_TRUE(Contains(with([](auto& b) { b.x = b.y; }), "y must not be"));
  ASSERT_CUDA(cudaDeviceSynchronize());
  Linear none;
  EXPECT_EQ(Code::kInvalidArgument, none.Launch(good, nullptr, 0, nullptr).code());
}

TEST_F(LinearChecksTest, SmallWorkspaceIsRefused) {
  LinearContext::Options options;
  options.use_own = false;
  options.measure = false;
  std::unique_ptr<LinearContext> context;
  ASSERT_OK(LinearContext::Create(options, &context));
  // A product with few tiles and a long k, so that its sums are split.
  Linear linear;
  ASSERT_OK(Linear::Create(*context, {.m = 64, .n = 256, .k = 4096}, &linear));
  if (linear.workspace_bytes() == 0) GTEST_SKIP() << "this GPU's algorithm needs no workspace";
  Layer layer({.m = 64, .n = 256, .k = 4096}, false);
  layer.Init(1);
  const Status status = linear.Launch(layer.buffers(), nullptr, 0, nullptr);
  EXPECT_EQ(Code::kInvalidArgument, status.code());
  EXPECT_TRUE(Contains(status.message(), "workspace is 0 bytes, must be "));
}

TEST_F(LinearChecksTest, EqualShapesShareOneMeasurement) {
  const auto context = MakeContext(Path::kMeasured);
  ASSERT_NE(nullptr, context);
  Linear first, second;
  ASSERT_OK(Linear::Create(*context, {.m = 512, .n = 768, .k = 768}, &first));
  ASSERT_OK(Linear::Create(*context, {.m = 512, .n = 768, .k = 768, .ldx = 768}, &second));
  EXPECT_GT(first.measured_milliseconds(), 0.0f);
  EXPECT_EQ(first.measured_milliseconds(), second.measured_milliseconds());
  EXPECT_EQ(first.algorithm(), second.algorithm());
}

}  // namespace
}  // namespace deepencoder::kernels
