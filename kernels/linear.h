// y = epilogue(x W^T + bias) (+ residual): every dense layer and, over gathered patches, every
// convolution.
//
//   x        [m][k]  row stride ldx elements   model type (bf16 or fp16)
//   weight   [n][k]  contiguous                model type; as checkpoints store nn.Linear
//   bias     [n]     model type
//   residual [m][n]  row stride ldr            type of y; may be y itself
//   y        [m][n]  row stride ldy            model type or fp32
// Accumulation and epilogue are fp32 (see LinearContext for the one place where y is rounded twice).
//
// Batch invariance: the bits of a row do not depend on m, so an image is encoded to the same bits alone and in any
// company. Every product that is used accumulates k in ascending order in one fp32 accumulator, never split;
// measuring passes over those whose result differs in a bit from our own kernel's.
//
// With a second operand x2 [m][k2] the product runs over [x, x2] as if they were concatenated along k;
// weight is then [n][k + k2]: the projector reads [CLIP, SAM] so, without a copy. Rows of x may also
// come in groups with a gap between them: row r lies at
//   x + (r / group_rows) * group_stride + (r % group_rows) * ldx,
// which is how the projector passes over each image's class token.
//
// Plans are made at load and launched while serving:
//   std::unique_ptr<LinearContext> context;
//   LinearContext::Create({}, &context);
//   Linear qkv;
//   Linear::Create(*context, {.type = type, .y_type = type, .m = 4096, .n = 2304, .k = 768}, &qkv);
//   context->ReleaseScratch();                                   // when the last plan is made
//   qkv.Launch({.x = x, .weight = w, .bias = b, .y = y}, workspace, bytes, stream);
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "encoder/base/dtype.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

enum class Epilogue : uint8_t {
  kNone,
  kGelu,       // x/2 (1 + erf(x/sqrt 2)): SAM
  kQuickGelu,  // x sigmoid(1.702 x): CLIP
};

// Everything about a dense layer but its addresses. n, k, k2 and every stride are multiples of 8, so
// that each row starts on 16 bytes. A stride of 0 means contiguous.
struct LinearShape {
  DType type = DType::kBf16;    // of x, weight and bias
  DType y_type = DType::kBf16;  // of y and residual: `type` or, without an activation, kFp32
  int m = 0;
  int n = 0;
  int k = 0;
  int k2 = 0;  // columns of x2; 0: there is none
  int64_t ldx = 0;
  int64_t ldx2 = 0;
  int64_t ldr = 0;
  int64_t ldy = 0;
  int group_rows = 0;  // 0: one group of all m rows; otherwise divides m
  int64_t group_stride = 0;
  Epilogue epilogue = Epilogue::kNone;
  bool bias = true;
  bool residual = false;  // not together with an activation: no layer of the model has both

  bool operator==(const LinearShape&) const = default;
};

// Device addresses, each aligned to 16 bytes. x2, bias and residual are null exactly if the shape has
// none. y overlaps no input, except that residual may be y (then ldr must be ldy).
struct LinearBuffers {
  const void* x = nullptr;
  const void* x2 = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
};

class LinearProduct;

// What plans on one device share: the cuBLASLt handle, the measurements of every shape seen so far, and
// the memory they run in. A shape is measured once: every cuBLASLt algorithm that the heuristics
// propose, and on Hopper our own kernel's tilings, on random data; the fastest is kept. Algorithms whose
// result depends on the order in which blocks finish are left out, so equal inputs give equal bits.
//
// The activations of cuBLASLt are not the model's (its GELU is the tanh approximation). With a cuBLASLt
// product they are a second pass over y, and a second operand is a second product added to y: there y is
// rounded to its type in between. Our own kernel rounds once.
//
// Thread-safe; must outlive the Linears made from it.
class LinearContext {
 public:
  struct Options {
    size_t workspace_bytes = size_t{32} << 20;  // the most that a plan may ask of its launches
    int cublas_candidates = 24;                 // how many heuristic results are measured
    bool use_cublas = true;
    bool use_own = true;  // our kernel, where the GPU has it
    bool measure = true;  // otherwise the first candidate is taken: cuBLASLt's first guess
  };

  // For the current device.
  static Status Create(const Options& options, std::unique_ptr<LinearContext>* context);
  ~LinearContext();
  LinearContext(const LinearContext&) = delete;
  LinearContext& operator=(const LinearContext&) = delete;

  // Frees the device memory that measurements ran in. They take it anew when they need it; where there
  // is not enough, plans go unmeasured.
  void ReleaseScratch();

 private:
  friend class Linear;
  struct State;
  explicit LinearContext(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Linear {
 public:
  // Waits for the device if the shape is new. On failure *linear is as it was.
  static Status Create(LinearContext& context, const LinearShape& shape, Linear* linear);

  // Enqueues the product; needs a workspace (16-byte aligned) of at least workspace_bytes(), which may
  // hold anything and belongs to this launch until it is done. Allocates nothing and may be captured in
  // a graph. Thread-safe.
  Status Launch(const LinearBuffers& buffers, void* workspace, size_t workspace_bytes,
                cudaStream_t stream) const;

  const LinearShape& shape() const { return shape_; }
  size_t workspace_bytes() const;
  // Which algorithm was chosen, for logs and benchmarks.
  std::string algorithm() const;
  // What it took when it was measured; 0 if it was not.
  float measured_milliseconds() const { return milliseconds_; }

 private:
  LinearShape shape_;
  std::shared_ptr<const LinearProduct> product_;
  float milliseconds_ = 0;
};

}  // namespace deepencoder::kernels
