#include "kernels/linear_cublas.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/linear_activation.h"
#include "kernels/linear_bias.h"

// Returns from the enclosing function, which returns Status, if a cuBLASLt call fails.
#define CUBLAS_RETURN(call)                                                                    \
  do {                                                                                         \
    if (const cublasStatus_t cublas_status_ = (call); cublas_status_ != CUBLAS_STATUS_SUCCESS) \
      return CublasStatus(cublas_status_, #call, __FILE__, __LINE__);                          \
  } while (0)

namespace deepencoder::kernels {
namespace {

// What a launch may assume of its addresses; the default of the heuristics is 256 bytes.
constexpr uint32_t kAlignment = 16;

Status CublasStatus(cublasStatus_t status, const char* call, const char* file, int line) {
  const Code code = status == CUBLAS_STATUS_ALLOC_FAILED ? Code::kResourceExhausted : Code::kDevice;
  return {code, std::string(call) + " at " + file + ":" + std::to_string(line) + ": " +
                    cublasLtGetStatusString(status)};
}

cudaDataType_t CudaType(DType type) {
  switch (type) {
    case DType::kBf16:
      return CUDA_R_16BF;
    case DType::kFp16:
      return CUDA_R_16F;
    case DType::kFp32:
      break;
  }
  return CUDA_R_32F;
}

// Bytes of the workspace that hold the bias in y's type; 0 if it has that type already.
size_t WideBiasBytes(const LinearShape& shape) {
  if (!shape.bias || shape.y_type == shape.type) return 0;
  return (static_cast<size_t>(shape.n) * SizeOf(shape.y_type) + 255) / 256 * 256;
}

// One product in cuBLASLt's column-major terms: with x, W and y read as their transposes,
//   y^T [n][m] = (W^T)^T [n][k] x^T [k][m] (+ c^T), so A = W^T (transposed), B = x^T.
// The opaque structs hold all state by value: a copy needs no allocation.
struct Product {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t weight{}, x{}, c{}, y{};
  int64_t weight_offset = 0;  // elements: first column of W that it reads
  bool adds_c = false;        // beta = 1
  bool adds_bias = false;
};

// The columns of x and W that a product reads, and how rows of its x are laid out.
struct Operand {
  int k = 0;
  int64_t ld = 0;
  int64_t group_stride = 0;
  int64_t weight_offset = 0;
};

Status InitLayout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld, int groups,
                  int64_t group_stride, cublasLtMatrixLayoutOpaque_t* layout) {
  CUBLAS_RETURN(cublasLtMatrixLayoutInit(layout, type, rows, columns, ld));
  if (groups > 1) {
    const int32_t count = groups;
    CUBLAS_RETURN(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                   &count, sizeof(count)));
    CUBLAS_RETURN(cublasLtMatrixLayoutSetAttribute(
        layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &group_stride, sizeof(group_stride)));
  }
  return {};
}

// `c_stride` is the row stride of what is added (residual or y itself).
Status InitProduct(const LinearShape& shape, const Operand& operand, bool adds_bias, bool adds_c,
                   int64_t c_stride, Product* product) {
  const cudaDataType_t type = CudaType(shape.type);
  const cudaDataType_t y_type = CudaType(shape.y_type);
  CUBLAS_RETURN(cublasLtMatmulDescInit(&product->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  CUBLAS_RETURN(cublasLtMatmulDescSetAttribute(&product->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                               &transposed, sizeof(transposed)));
  if (adds_bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const auto bias_type = static_cast<int32_t>(y_type);
    CUBLAS_RETURN(cublasLtMatmulDescSetAttribute(&product->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                 &epilogue, sizeof(epilogue)));
    CUBLAS_RETURN(cublasLtMatmulDescSetAttribute(
        &product->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof(bias_type)));
  }
  // Groups are a batch only where x has gaps between them.
  const bool batched = operand.group_stride != 0;
  const int groups = batched ? Groups(shape) : 1;
  const int64_t rows = batched ? GroupRows(shape) : shape.m;
  DEEPENCODER_RETURN(
      InitLayout(type, operand.k, shape.n, shape.k + shape.k2, groups, 0, &product->weight));
  DEEPENCODER_RETURN(
      InitLayout(type, operand.k, rows, operand.ld, groups, operand.group_stride, &product->x));
  DEEPENCODER_RETURN(
      InitLayout(y_type, shape.n, rows, c_stride, groups, rows * c_stride, &product->c));
  DEEPENCODER_RETURN(
      InitLayout(y_type, shape.n, rows, shape.ldy, groups, rows * shape.ldy, &product->y));
  product->weight_offset = operand.weight_offset;
  product->adds_bias = adds_bias;
  product->adds_c = adds_c;
  return {};
}

using Algorithms = std::vector<cublasLtMatmulHeuristicResult_t>;

// The best guesses for a product, best first; none if cuBLASLt cannot do it.
Status FindAlgorithms(cublasLtHandle_t handle, Product& product, size_t workspace_bytes, int count,
                      Algorithms* algorithms) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  CUBLAS_RETURN(cublasLtMatmulPreferenceInit(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value));
  };
  const auto workspace = static_cast<uint64_t>(workspace_bytes);
  CUBLAS_RETURN(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace));
  // No sum is split: where it would be depends on m, and so would a row's bits.
  const auto reductions = static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE);
  CUBLAS_RETURN(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    CUBLAS_RETURN(set(attribute, kAlignment));
  }
  algorithms->resize(std::max(count, 1));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, &product.operation, &product.weight, &product.x, &product.c, &product.y, &preference,
      static_cast<int>(algorithms->size()), algorithms->data(), &found);
  algorithms->resize(status == CUBLAS_STATUS_SUCCESS ? found : 0);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
      status == CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  return CublasStatus(status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
}

// One or two products (x, then x2 added to y), then the activation. The workspace begins with the
// widened bias, where there is one.
class CublasProduct final : public LinearProduct {
 public:
  struct Step {
    Product product;
    cublasLtMatmulHeuristicResult_t algorithm{};
  };

  CublasProduct(cublasLtHandle_t handle, const LinearShape& shape, int rank,
                std::vector<Step> steps)
      : handle_(handle), shape_(shape), rank_(rank), steps_(std::move(steps)) {}

  Status Launch(const LinearBuffers& buffers, void* workspace, size_t workspace_bytes,
                cudaStream_t stream) const override {
    const void* bias = buffers.bias;
    const size_t bias_bytes = WideBiasBytes(shape_);
    if (bias_bytes != 0) {
      auto* const wide = static_cast<float*>(workspace);
      DEEPENCODER_RETURN(LaunchWidenBias(shape_.type, shape_.n, bias, wide, stream));
      bias = wide;
      workspace = static_cast<char*>(workspace) + bias_bytes;
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      const void* const x = i == 0 ? buffers.x : buffers.x2;
      const void* const c = i == 0 && shape_.residual ? buffers.residual : buffers.y;
      DEEPENCODER_RETURN(LaunchStep(steps_[i], x, buffers.weight, bias, c, buffers.y, workspace,
                                    workspace_bytes - bias_bytes, stream));
    }
    return LaunchActivation(shape_.y_type, shape_.m, shape_.n, buffers.y, shape_.ldy,
                            shape_.epilogue, stream);
  }

  size_t workspace_bytes() const override {
    size_t most = 0;
    for (const Step& step : steps_) most = std::max(most, step.algorithm.workspaceSize);
    return WideBiasBytes(shape_) + most;
  }

  std::string name() const override {
    std::string name = "cublaslt#" + std::to_string(rank_);
    if (steps_.size() > 1) name += " twice";
    if (shape_.epilogue != Epilogue::kNone) name += " + activation";
    return name;
  }

 private:
  Status LaunchStep(const Step& step, const void* x, const void* weight, const void* bias,
                    const void* c, void* y, void* workspace, size_t workspace_bytes,
                    cudaStream_t stream) const {
    // The address of the bias is part of the descriptor: a copy lets slots share the plan.
    cublasLtMatmulDescOpaque_t operation = step.product.operation;
    if (step.product.adds_bias) {
      CUBLAS_RETURN(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                   &bias, sizeof(bias)));
    }
    cublasLtMatrixLayoutOpaque_t weight_layout = step.product.weight, x_layout = step.product.x,
                                 c_layout = step.product.c, y_layout = step.product.y;
    const void* const first_weight =
        static_cast<const uint16_t*>(weight) + step.product.weight_offset;
    const float one = 1.0f;
    const float beta = step.product.adds_c ? 1.0f : 0.0f;
    CUBLAS_RETURN(cublasLtMatmul(handle_, &operation, &one, first_weight, &weight_layout, x,
                                 &x_layout, &beta, c, &c_layout, y, &y_layout, &step.algorithm.algo,
                                 workspace, workspace_bytes, stream));
    return {};
  }

  cublasLtHandle_t handle_;
  LinearShape shape_;
  int rank_;
  std::vector<Step> steps_;
};

// The products of a layer; the bias rides in the first.
Status InitProducts(const LinearShape& shape, std::vector<Product>* products) {
  const int64_t group_stride = shape.group_rows == 0 ? 0 : shape.group_stride;
  const Operand first{shape.k, shape.ldx, group_stride, 0};
  products->resize(shape.k2 == 0 ? 1 : 2);
  DEEPENCODER_RETURN(InitProduct(shape, first, shape.bias, shape.residual,
                                 shape.residual ? shape.ldr : shape.ldy, &products->front()));
  if (shape.k2 == 0) return {};
  const Operand second{shape.k2, shape.ldx2, 0, shape.k};
  return InitProduct(shape, second, false, true, shape.ldy, &products->back());
}

}  // namespace

Status AddCublasProducts(cublasLtHandle_t handle, const LinearShape& shape, size_t workspace_bytes,
                         int count, LinearProducts* out) {
  const size_t bias_bytes = WideBiasBytes(shape);
  if (workspace_bytes < bias_bytes) {
    return InvalidArgument("a workspace of " + std::to_string(workspace_bytes) +
                           " bytes has no room for a bias of " + std::to_string(bias_bytes));
  }
  std::vector<Product> products;
  DEEPENCODER_RETURN(InitProducts(shape, &products));
  std::vector<Algorithms> algorithms(products.size());
  size_t most = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    DEEPENCODER_RETURN(
        FindAlgorithms(handle, products[i], workspace_bytes - bias_bytes, count, &algorithms[i]));
    if (algorithms[i].empty()) return {};
    most = std::max(most, algorithms[i].size());
  }
  // Both products of a layer with two operands have the same m and n: they take the same rank.
  for (size_t rank = 0; rank < most; ++rank) {
    std::vector<CublasProduct::Step> steps;
    for (size_t i = 0; i < products.size(); ++i) {
      steps.push_back({products[i], algorithms[i][std::min(rank, algorithms[i].size() - 1)]});
    }
    out->push_back(
        std::make_shared<CublasProduct>(handle, shape, static_cast<int>(rank), std::move(steps)));
  }
  return {};
}

}  // namespace deepencoder::kernels
