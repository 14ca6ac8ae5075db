// Matrix products on oneDNN: out[rows][width] = epilogue(in[rows][depth] W^T + bias).
#pragma once

#include <cstddef>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <vector>

#include "encoder/base/dtype.h"
#include "encoder/cpu/arena.h"

namespace deepencoder::cpu {

// The one engine: oneDNN refuses memory, streams and products of different ones together.
const dnnl::engine& CpuEngine();

enum class Epilogue {
  kNone,
  kGelu,       // x * Phi(x), by erf
  kQuickGelu,  // x * sigmoid(1.702 x)
  kAdd,        // out += product: a residual stream
};

struct LinearSpec {
  int depth = 0;               // of the sum
  int width = 0;               // of the result
  DType input = DType::kFp32;  // of `in` and the packed weights
  DType output = DType::kFp32;
  Epilogue epilogue = Epilogue::kNone;
};

// What a product needs besides its operands; a slot's own.
struct LinearRunner {
  dnnl::stream stream;
  std::byte* scratchpad;  // of the largest Linear::scratchpad_bytes()
};

// Weights in oneDNN's blocked layout, and a product for each number of rows that will be asked for.
// Immutable, shared by slots. The result of a row depends on `rows`, so equal views must be given
// in equal numbers of rows to give equal bits.
class Linear {
 public:
  Linear() = default;
  // `weights` is [width][depth]; `bias` is [width] or empty. Packs into `arena`. The number of
  // threads in force must be the one Run is called with. Throws dnnl::error, std::bad_alloc.
  Linear(const LinearSpec& spec, std::span<const int> rows, std::span<const float> weights,
         std::span<const float> bias, Arena& arena);

  // `rows` must be one that the constructor was given. Throws dnnl::error.
  void Run(LinearRunner& runner, int rows, const void* in, void* out) const;

  size_t scratchpad_bytes() const { return scratchpad_bytes_; }

 private:
  struct Product {
    dnnl::matmul run;
    dnnl::memory::desc in, out, scratchpad;
  };

  dnnl::memory::desc weights_desc_, bias_desc_;
  std::byte* weights_ = nullptr;     // in the arena
  float* bias_ = nullptr;            // likewise; null: none
  std::map<int, Product> products_;  // by rows
  size_t scratchpad_bytes_ = 0;
};

}  // namespace deepencoder::cpu
