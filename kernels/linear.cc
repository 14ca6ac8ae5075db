#include "kernels/linear.h"

#include <cublasLt.h>

#include <mutex>
#include <utility>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/gemm_sm90.h"
#include "kernels/linear_cublas.h"
#include "kernels/linear_measure.h"
#include "kernels/linear_product.h"

namespace deepencoder::kernels {
namespace {

// Far above any layer; keeps byte offsets well inside int64.
constexpr int64_t kMaxRows = int64_t{1} << 28;
constexpr int64_t kMaxColumns = 1 << 20;
constexpr int64_t kMaxStride = int64_t{1} << 32;

Status CheckMultipleOf8(int64_t value, const char* name) {
  if (value % 8 == 0) return {};
  return InvalidArgument(std::string(name) + " is " + std::to_string(value) +
                         ", must be a multiple of 8");
}

// A row stride: 0 becomes `columns`.
Status FillStride(int64_t columns, const char* name, int64_t* stride) {
  if (*stride == 0) *stride = columns;
  DEEPENCODER_RETURN(CheckRange(*stride, columns, kMaxStride, name));
  return CheckMultipleOf8(*stride, name);
}

Status FillGroups(LinearShape* shape) {
  if (shape->group_rows == 0) {
    if (shape->group_stride == 0) return {};
    return InvalidArgument("group_stride is given without group_rows");
  }
  DEEPENCODER_RETURN(CheckRange(shape->group_rows, 1, shape->m, "group_rows"));
  if (shape->m % shape->group_rows != 0) {
    return InvalidArgument("group_rows is " + std::to_string(shape->group_rows) +
                           ", must divide m, which is " + std::to_string(shape->m));
  }
  DEEPENCODER_RETURN(
      FillStride(shape->group_rows * shape->ldx, "group_stride", &shape->group_stride));
  if (shape->group_rows == shape->m || shape->group_stride == shape->group_rows * shape->ldx) {
    shape->group_rows = 0;  // no gaps: one group
    shape->group_stride = 0;
  }
  return {};
}

// Checks a shape and fills in its strides, so that equal layers have equal shapes.
Status Normalise(LinearShape* shape) {
  DEEPENCODER_RETURN(CheckModelType(shape->type, "type"));
  if (shape->y_type != shape->type && shape->y_type != DType::kFp32) {
    return InvalidArgument("y_type must be type or fp32");
  }
  DEEPENCODER_RETURN(CheckRange(shape->m, 1, kMaxRows, "m"));
  DEEPENCODER_RETURN(CheckRange(shape->n, 8, kMaxColumns, "n"));
  DEEPENCODER_RETURN(CheckRange(shape->k, 8, kMaxColumns, "k"));
  DEEPENCODER_RETURN(CheckRange(shape->k2, 0, kMaxColumns, "k2"));
  DEEPENCODER_RETURN(CheckMultipleOf8(shape->n, "n"));
  DEEPENCODER_RETURN(CheckMultipleOf8(shape->k, "k"));
  DEEPENCODER_RETURN(CheckMultipleOf8(shape->k2, "k2"));
  DEEPENCODER_RETURN(FillStride(shape->k, "ldx", &shape->ldx));
  DEEPENCODER_RETURN(FillStride(shape->n, "ldy", &shape->ldy));
  if (shape->k2 == 0) shape->ldx2 = 0;
  if (shape->k2 != 0) DEEPENCODER_RETURN(FillStride(shape->k2, "ldx2", &shape->ldx2));
  if (!shape->residual) shape->ldr = 0;
  if (shape->residual) DEEPENCODER_RETURN(FillStride(shape->n, "ldr", &shape->ldr));
  if (shape->epilogue > Epilogue::kQuickGelu) return InvalidArgument("unknown epilogue");
  if (shape->epilogue != Epilogue::kNone && shape->residual) {
    return InvalidArgument("an activation together with a residual is not supported");
  }
  if (shape->epilogue != Epilogue::kNone && shape->y_type == DType::kFp32) {
    return InvalidArgument("an activation needs y in the model's type, not fp32");
  }
  return FillGroups(shape);
}

// A pointer that must be there exactly if the shape says so.
Status CheckOptional(const void* pointer, bool wanted, const char* name) {
  if (wanted) return CheckPointer(pointer, name);
  if (pointer == nullptr) return {};
  return InvalidArgument(std::string(name) + " is given, but the plan was made without it");
}

Status CheckBuffers(const LinearShape& shape, const LinearBuffers& buffers) {
  DEEPENCODER_RETURN(CheckPointer(buffers.x, "x"));
  DEEPENCODER_RETURN(CheckOptional(buffers.x2, shape.k2 != 0, "x2"));
  DEEPENCODER_RETURN(CheckPointer(buffers.weight, "weight"));
  DEEPENCODER_RETURN(CheckOptional(buffers.bias, shape.bias, "bias"));
  DEEPENCODER_RETURN(CheckOptional(buffers.residual, shape.residual, "residual"));
  DEEPENCODER_RETURN(CheckPointer(buffers.y, "y"));
  if (buffers.y == buffers.x || buffers.y == buffers.x2 || buffers.y == buffers.weight) {
    return InvalidArgument("y must not be x, x2 or weight");
  }
  if (buffers.residual == buffers.y && shape.ldr != shape.ldy) {
    return InvalidArgument("residual is y, but ldr is not ldy");
  }
  return {};
}

}  // namespace

struct LinearContext::State {
  struct Choice {
    LinearShape shape;
    Measured best;
  };

  Options options;
  cublasLtHandle_t cublas = nullptr;
  std::mutex mutex;
  MeasureScratch scratch;       // guarded by mutex
  std::vector<Choice> choices;  // guarded by mutex

  ~State() {
    choices.clear();
    if (cublas != nullptr) cublasLtDestroy(cublas);
  }

  // The best product for a normalised shape. Caller holds the mutex.
  Status Choose(const LinearShape& shape, Measured* best);
};

Status LinearContext::State::Choose(const LinearShape& shape, Measured* best) {
  for (const Choice& choice : choices) {
    if (choice.shape == shape) {
      *best = choice.best;
      return {};
    }
  }
  LinearProducts products;
  if (options.use_cublas) {
    DEEPENCODER_RETURN(AddCublasProducts(cublas, shape, options.workspace_bytes,
                                         options.cublas_candidates, &products));
  }
  const size_t library_products = products.size();
  if (options.use_own) DEEPENCODER_RETURN(AddSm90Products(shape, &products));
  const bool has_own = products.size() > library_products;
  if (products.empty()) {
    return {Code::kUnsupported, "no algorithm computes a dense layer of m " +
                                    std::to_string(shape.m) + ", n " + std::to_string(shape.n) +
                                    ", k " + std::to_string(shape.k) + " on this GPU"};
  }
  // Our own kernel, which comes last, gives a row the same bits at every m. Where there is none, cuBLASLt's first
  // guess stands for it.
  const size_t reference = has_own ? products.size() - 1 : 0;
  *best = {products[reference], 0};
  if (options.measure && products.size() > 1) {
    Status status = MeasureProducts(shape, products, reference, scratch, best);
    // Too little memory to measure in: the first guess serves.
    if (!status.ok() && status.code() != Code::kResourceExhausted) return status;
  }
  choices.push_back({shape, *best});
  return {};
}

LinearContext::LinearContext(std::unique_ptr<State> state) : state_(std::move(state)) {}
LinearContext::~LinearContext() = default;

Status LinearContext::Create(const Options& options, std::unique_ptr<LinearContext>* context) {
  if (context == nullptr) return InvalidArgument("context is null");
  DEEPENCODER_RETURN(CheckRange(options.cublas_candidates, 1, 256, "cublas_candidates"));
  auto state = std::make_unique<State>();
  state->options = options;
  if (const cublasStatus_t status = cublasLtCreate(&state->cublas);
      status != CUBLAS_STATUS_SUCCESS) {
    return {Code::kDevice, std::string("cublasLtCreate: ") + cublasLtGetStatusString(status)};
  }
  context->reset(new LinearContext(std::move(state)));
  return {};
}

void LinearContext::ReleaseScratch() {
  const std::lock_guard lock(state_->mutex);
  state_->scratch.Release();
}

Status Linear::Create(LinearContext& context, const LinearShape& shape, Linear* linear) {
  if (linear == nullptr) return InvalidArgument("linear is null");
  LinearShape normal = shape;
  DEEPENCODER_RETURN(Normalise(&normal));
  Measured best;
  {
    const std::lock_guard lock(context.state_->mutex);
    DEEPENCODER_RETURN(context.state_->Choose(normal, &best));
  }
  linear->shape_ = normal;
  linear->product_ = std::move(best.product);
  linear->milliseconds_ = best.milliseconds;
  return {};
}

Status Linear::Launch(const LinearBuffers& buffers, void* workspace, size_t workspace_bytes,
                      cudaStream_t stream) const {
  if (product_ == nullptr) return InvalidArgument("the plan was not made: call Create first");
  DEEPENCODER_RETURN(CheckBuffers(shape_, buffers));
  const size_t needed = product_->workspace_bytes();
  if (workspace_bytes < needed) {
    return InvalidArgument("workspace is " + std::to_string(workspace_bytes) + " bytes, must be " +
                           std::to_string(needed));
  }
  if (needed != 0) DEEPENCODER_RETURN(CheckPointer(workspace, "workspace"));
  return product_->Launch(buffers, workspace, workspace_bytes, stream);
}

size_t Linear::workspace_bytes() const {
  return product_ == nullptr ? 0 : product_->workspace_bytes();
}
std::string Linear::algorithm() const { return product_ == nullptr ? "" : product_->name(); }

}  // namespace deepencoder::kernels
