// The bits of a row of a dense layer depend on nothing but that row and the weights: neither on which product was
// chosen, nor on how many other rows there are.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gemm_sm90.h"
#include "kernels/linear.h"
#include "kernels/linear_measure.h"
#include "kernels/linear_operands.h"
#include "tests/kernels/gpu_test.h"

namespace deepencoder::kernels {
namespace {

using testing::DeviceBuffer;
using testing::GpuTest;

// Strides filled in, as products want them.
LinearShape Shape(DType type, int m, int n, int k) {
  LinearShape shape;
  shape.type = shape.y_type = type;
  shape.m = m, shape.n = n, shape.k = k;
  shape.ldx = k, shape.ldy = n;
  return shape;
}

LinearShape Residual(LinearShape shape) {
  shape.residual = true;
  shape.ldr = shape.ldy;
  return shape;
}

LinearShape Wide(LinearShape shape) {
  shape.y_type = DType::kFp32;
  return shape;
}

LinearShape With(Epilogue epilogue, LinearShape shape) {
  shape.epilogue = epilogue;
  return shape;
}

LinearShape TwoOperands(LinearShape shape, int groups) {
  shape.k2 = shape.k, shape.ldx2 = shape.k;
  shape.group_rows = shape.m / groups;
  shape.group_stride = (shape.group_rows + 1) * shape.ldx;
  return shape;
}

// Layers of the model at few and at many rows, and tiles that are not full.
std::vector<LinearShape> Shapes(DType type) {
  return {
      Shape(type, 1, 768, 768),
      Shape(type, 257, 3072, 1024),
      Shape(type, 4096, 2304, 768),
      Shape(type, 130, 200, 72),
      Residual(Shape(type, 1024, 768, 3072)),
      Residual(Wide(Shape(type, 65, 1024, 1024))),
      Residual(Wide(Shape(type, 401, 1024, 4096))),
      With(Epilogue::kGelu, Shape(type, 1600, 3072, 768)),
      With(Epilogue::kQuickGelu, Shape(type, 101, 4096, 1024)),
      Wide(TwoOperands(Shape(type, 768, 1280, 1024), 3)),
      Wide(TwoOperands(Shape(type, 200, 1280, 1024), 2)),
  };
}

std::string Describe(const LinearShape& shape) {
  return "m " + std::to_string(shape.m) + ", n " + std::to_string(shape.n) + ", k " +
         std::to_string(shape.k) + " + " + std::to_string(shape.k2);
}

class LinearInvarianceTest : public GpuTest, public ::testing::WithParamInterface<DType> {};

TEST_P(LinearInvarianceTest, EveryTilingGivesTheSameBits) {
  for (const LinearShape& shape : Shapes(GetParam())) {
    SCOPED_TRACE(Describe(shape));
    LinearProducts products;
    ASSERT_OK(AddSm90Products(shape, &products));
    if (products.empty()) GTEST_SKIP() << "our own kernel needs a Hopper GPU";
    MeasureScratch scratch;
    ASSERT_OK(scratch.Reserve(LinearOperands::Bytes(shape, products)));
    LinearOperands operands(shape, products, scratch.data());
    for (const OperandData data : {OperandData::kRandom, OperandData::kCancelling}) {
      ASSERT_OK(operands.Fill(data, nullptr));
      uint64_t wanted = 0;
      ASSERT_OK(operands.Fingerprint(*products.back(), nullptr, &wanted));
      for (const auto& product : products) {
        uint64_t bits = 0;
        ASSERT_OK(operands.Fingerprint(*product, nullptr, &bits));
        EXPECT_EQ(bits, wanted) << product->name();
      }
    }
  }
}

// Rows 0 to m-1 of x, for every m: the same bits as in the largest batch.
TEST_P(LinearInvarianceTest, ARowsBitsDoNotDependOnTheirNumber) {
  const DType type = GetParam();
  std::unique_ptr<LinearContext> context;
  ASSERT_OK(LinearContext::Create({}, &context));
  const int counts[] = {3208, 1, 63, 64, 65, 101, 257, 401, 808, 1285};  // the largest first
  for (const auto& [n, k] : {std::pair(1024, 1024), std::pair(3072, 1024), std::pair(768, 768)}) {
    const LinearShape largest = Shape(type, counts[0], n, k);
    MeasureScratch scratch;
    ASSERT_OK(scratch.Reserve(LinearOperands::Bytes(largest, {})));
    LinearOperands operands(largest, {}, scratch.data());
    ASSERT_OK(operands.Fill(OperandData::kCancelling, nullptr));
    std::vector<uint16_t> wanted;
    for (const int m : counts) {
      Linear linear;
      ASSERT_OK(Linear::Create(*context, Shape(type, m, n, k), &linear));
      DeviceBuffer<uint16_t> y(static_cast<size_t>(m) * n);
      DeviceBuffer<uint8_t> workspace(linear.workspace_bytes() + 16);
      LinearBuffers buffers = operands.buffers();
      buffers.y = y.data();
      ASSERT_OK(linear.Launch(buffers, workspace.data(), workspace.size(), nullptr));
      const std::vector<uint16_t> rows = y.Get();
      if (wanted.empty()) wanted = rows;
      EXPECT_TRUE(std::equal(rows.begin(), rows.end(), wanted.begin()))
          << Describe(linear.shape()) << ": " << linear.algorithm();
    }
  }
}

// y[r][c] = sum over k from the last to the first: right, but in an order of its own. One block a row.
template <typename T>
__global__ void DescendingKernel(const T* x, const T* weight, T* y, int n, int k) {
  for (int c = threadIdx.x; c < n; c += blockDim.x) {
    float sum = 0.f;
    for (int i = k - 1; i >= 0; --i) {
      sum = fmaf(static_cast<float>(x[blockIdx.x * k + i]), static_cast<float>(weight[c * k + i]),
                 sum);
    }
    y[blockIdx.x * n + c] = T(sum);
  }
}

template <typename T>
class DescendingProduct final : public LinearProduct {
 public:
  explicit DescendingProduct(const LinearShape& shape) : shape_(shape) {}
  Status Launch(const LinearBuffers& buffers, void* /*workspace*/, size_t /*bytes*/,
                cudaStream_t stream) const override {
    DescendingKernel<T><<<shape_.m, 256, 0, stream>>>(
        static_cast<const T*>(buffers.x), static_cast<const T*>(buffers.weight),
        static_cast<T*>(buffers.y), shape_.n, shape_.k);
    DEEPENCODER_CUDA_RETURN(cudaGetLastError());
    return {};
  }
  size_t workspace_bytes() const override { return 0; }
  std::string name() const override { return "descending"; }

 private:
  LinearShape shape_;
};

// Few elements of 16 bits: on random data another order could pass by chance.
TEST_P(LinearInvarianceTest, AnotherOrderOfSummationIsPassedOver) {
  LinearShape shape = Shape(GetParam(), 4, 64, 768);
  shape.bias = false;
  LinearProducts products;
  ASSERT_OK(AddSm90Products(shape, &products));
  if (products.empty()) GTEST_SKIP() << "our own kernel needs a Hopper GPU";
  const auto reference = products.back();
  std::shared_ptr<const LinearProduct> other;
  if (GetParam() == DType::kBf16) {
    other = std::make_shared<DescendingProduct<__nv_bfloat16>>(shape);
  } else {
    other = std::make_shared<DescendingProduct<__half>>(shape);
  }
  products = {other, reference};
  MeasureScratch scratch;
  ASSERT_OK(scratch.Reserve(LinearOperands::Bytes(shape, products)));
  LinearOperands operands(shape, products, scratch.data());
  ASSERT_OK(operands.Fill(OperandData::kCancelling, nullptr));
  uint64_t theirs = 0, ours = 0;
  ASSERT_OK(operands.Fingerprint(*other, nullptr, &theirs));
  ASSERT_OK(operands.Fingerprint(*reference, nullptr, &ours));
  EXPECT_NE(theirs, ours);
  Measured best;
  ASSERT_OK(MeasureProducts(shape, products, 1, scratch, &best));
  EXPECT_EQ(best.product, reference);
}

INSTANTIATE_TEST_SUITE_P(Types, LinearInvarianceTest, ::testing::Values(DType::kBf16, DType::kFp16),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace deepencoder::kernels
