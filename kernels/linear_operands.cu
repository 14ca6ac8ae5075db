#include <algorithm>

#include "kernels/arguments.h"
#include "kernels/element.cuh"
#include "kernels/linear_operands.h"

namespace deepencoder::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;

// Two uniform numbers in [-1, 1) a word. Zeros would flatter: multiplying them takes less power.
template <typename T>
__global__ void __launch_bounds__(kThreads) FillRandomKernel(uint32_t* words, size_t count) {
  const size_t step = size_t{gridDim.x} * kThreads;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    // A 64-bit finaliser (xor-shift-multiply) makes neighbouring indices independent.
    uint64_t h = (i + 1) * 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    h ^= h >> 31;
    constexpr float kUnit = 1.0f / 1073741824.0f;  // 2^-30: 31 bits to [0, 2)
    words[i] = Element<T>::Pack(static_cast<float>(h & 0x7FFFFFFFu) * kUnit - 1.0f,
                                static_cast<float>(h >> 33) * kUnit - 1.0f);
  }
}

// Copies the first half of each row's k 16-bit elements over the second, xor `sign` (0 or the sign bit).
__global__ void __launch_bounds__(kThreads)
    MirrorKernel(uint16_t* rows, int64_t count, int64_t ld, int k, uint16_t sign) {
  const int half = k / 2;
  const int64_t elements = count * half;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += step) {
    uint16_t* const first = rows + i / half * ld + i % half;
    first[half] = first[0] ^ sign;
  }
}

// Adds up a mix of every word with its place: the same bits give the same sum, in whatever order it is added.
__global__ void __launch_bounds__(kThreads)
    FingerprintKernel(const uint32_t* words, size_t count, unsigned long long* sum) {
  const size_t step = size_t{gridDim.x} * kThreads;
  unsigned long long mine = 0;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    uint64_t h = (words[i] + (i << 32)) * 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
    mine += h ^ (h >> 32);
  }
  atomicAdd(sum, mine);
}

Status FillRandom(DType type, void* data, size_t bytes, cudaStream_t stream) {
  auto* const words = static_cast<uint32_t*>(data);
  if (type == DType::kBf16) {
    FillRandomKernel<__nv_bfloat16><<<kBlocks, kThreads, 0, stream>>>(words, bytes / 4);
  } else {
    FillRandomKernel<__half><<<kBlocks, kThreads, 0, stream>>>(words, bytes / 4);
  }
  DEEPENCODER_CUDA_RETURN(cudaGetLastError());
  return {};
}

// `count` rows of `k` elements from element `first` on.
Status Mirror(const void* data, int64_t first, int64_t count, int64_t ld, int k, bool negate,
              cudaStream_t stream) {
  auto* const rows = static_cast<uint16_t*>(const_cast<void*>(data)) + first;
  MirrorKernel<<<kBlocks, kThreads, 0, stream>>>(rows, count, ld, k, negate ? 0x8000 : 0);
  DEEPENCODER_CUDA_RETURN(cudaGetLastError());
  return {};
}

// Byte sizes of a layer's buffers, each rounded up so that the next begins on 256 bytes.
struct Sizes {
  size_t x, x2, weight, bias, residual, y, workspace, sum;
  size_t operands() const { return x + x2 + weight + bias + residual + y; }
  size_t total() const { return operands() + workspace + sum; }
};

size_t RoundUp(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t BytesOf(int64_t elements, DType type) {
  return RoundUp(static_cast<size_t>(elements) * SizeOf(type));
}

Sizes SizesOf(const LinearShape& shape, const LinearProducts& products) {
  Sizes sizes{};
  const int64_t last_group = (Groups(shape) - 1) * shape.group_stride;
  sizes.x = BytesOf(last_group + GroupRows(shape) * shape.ldx, shape.type);
  sizes.x2 = BytesOf(shape.k2 == 0 ? 0 : shape.m * shape.ldx2, shape.type);
  sizes.weight = BytesOf(int64_t{shape.n} * (shape.k + shape.k2), shape.type);
  sizes.bias = BytesOf(shape.bias ? shape.n : 0, shape.type);
  // Where the strides allow it the residual is y itself, as in the model.
  const bool in_place = !shape.residual || shape.ldr == shape.ldy;
  sizes.residual = BytesOf(in_place ? 0 : shape.m * shape.ldr, shape.y_type);
  sizes.y = BytesOf(shape.m * shape.ldy, shape.y_type);
  for (const auto& product : products) {
    sizes.workspace = std::max(sizes.workspace, RoundUp(product->workspace_bytes()));
  }
  sizes.sum = RoundUp(sizeof(unsigned long long));
  return sizes;
}

}  // namespace

size_t LinearOperands::Bytes(const LinearShape& shape, const LinearProducts& products) {
  return SizesOf(shape, products).total();
}

LinearOperands::LinearOperands(const LinearShape& shape, const LinearProducts& products,
                               unsigned char* memory)
    : shape_(shape), memory_(memory) {
  const Sizes sizes = SizesOf(shape, products);
  const auto take = [&memory](size_t bytes) {
    unsigned char* const at = memory;
    memory += bytes;
    return bytes == 0 ? nullptr : at;
  };
  buffers_.x = take(sizes.x);
  buffers_.x2 = take(sizes.x2);
  buffers_.weight = take(sizes.weight);
  buffers_.bias = bias_ = take(sizes.bias);
  residual_ = take(sizes.residual);
  buffers_.y = take(sizes.y);
  if (shape.residual) buffers_.residual = residual_ == nullptr ? buffers_.y : residual_;
  workspace_ = take(sizes.workspace);
  sum_ = reinterpret_cast<unsigned long long*>(take(sizes.sum));
  fill_bytes_ = sizes.operands();
  y_bytes_ = sizes.y, bias_bytes_ = sizes.bias, residual_bytes_ = sizes.residual;
  workspace_bytes_ = sizes.workspace;
}

Status LinearOperands::Fill(OperandData data, cudaStream_t stream) {
  data_ = data;
  DEEPENCODER_RETURN(FillRandom(shape_.type, memory_, fill_bytes_, stream));
  return data == OperandData::kCancelling ? Cancel(stream) : Status();
}

// x W^T over the second half of k is minus that over the first; the same for x2.
Status LinearOperands::Cancel(cudaStream_t stream) const {
  for (int group = 0; group < Groups(shape_); ++group) {
    DEEPENCODER_RETURN(Mirror(buffers_.x, group * shape_.group_stride, GroupRows(shape_),
                              shape_.ldx, shape_.k, false, stream));
  }
  const int64_t weight_ld = shape_.k + shape_.k2;
  DEEPENCODER_RETURN(Mirror(buffers_.weight, 0, shape_.n, weight_ld, shape_.k, true, stream));
  if (shape_.k2 != 0) {
    DEEPENCODER_RETURN(Mirror(buffers_.x2, 0, shape_.m, shape_.ldx2, shape_.k2, false, stream));
    DEEPENCODER_RETURN(
        Mirror(buffers_.weight, shape_.k, shape_.n, weight_ld, shape_.k2, true, stream));
  }
  if (bias_ != nullptr) {
    DEEPENCODER_CUDA_RETURN(cudaMemsetAsync(bias_, 0, bias_bytes_, stream));
  }
  if (residual_ != nullptr) {
    DEEPENCODER_CUDA_RETURN(cudaMemsetAsync(residual_, 0, residual_bytes_, stream));
  }
  return {};
}

// What a residual in place starts from.
Status LinearOperands::FillY(cudaStream_t stream) const {
  if (data_ == OperandData::kRandom) return FillRandom(shape_.type, buffers_.y, y_bytes_, stream);
  DEEPENCODER_CUDA_RETURN(cudaMemsetAsync(buffers_.y, 0, y_bytes_, stream));
  return {};
}

Status LinearOperands::Fingerprint(const LinearProduct& product, cudaStream_t stream,
                                   uint64_t* fingerprint) {
  DEEPENCODER_RETURN(FillY(stream));
  DEEPENCODER_RETURN(Launch(product, stream));
  DEEPENCODER_CUDA_RETURN(cudaMemsetAsync(sum_, 0, sizeof(*sum_), stream));
  FingerprintKernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint32_t*>(buffers_.y),
                                                      y_bytes_ / 4, sum_);
  DEEPENCODER_CUDA_RETURN(cudaGetLastError());
  unsigned long long sum = 0;
  DEEPENCODER_CUDA_RETURN(cudaMemcpyAsync(&sum, sum_, sizeof(sum), cudaMemcpyDeviceToHost, stream));
  DEEPENCODER_CUDA_RETURN(cudaStreamSynchronize(stream));
  *fingerprint = sum;
  return {};
}

}  // namespace deepencoder::kernels
