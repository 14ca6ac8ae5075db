#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "kernels/arguments.h"
#include "kernels/element.cuh"
#include "kernels/linear_measure.h"

namespace deepencoder::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;
// Every product runs this often, then the fastest few again in turns; the least time counts.
constexpr int kFirstRuns = 2;
constexpr size_t kFinalists = 4;
constexpr int kFinalRounds = 3;
constexpr int kFinalRuns = 4;

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

// An event that is destroyed with its scope.
class Event {
 public:
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  Status Init() {
    DEEPENCODER_CUDA_RETURN(cudaEventCreate(&event_));
    return {};
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class Stream {
 public:
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Status Init() {
    DEEPENCODER_CUDA_RETURN(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    return {};
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Byte sizes of a layer's buffers, each rounded up so that the next begins on 256 bytes.
struct Sizes {
  size_t x, x2, weight, bias, residual, y, workspace;
  size_t total() const { return x + x2 + weight + bias + residual + y + workspace; }
};

size_t Bytes(int64_t elements, DType type) {
  return (static_cast<size_t>(elements) * SizeOf(type) + 255) / 256 * 256;
}

Sizes BufferSizes(const LinearShape& shape, const LinearProducts& products) {
  Sizes sizes{};
  const int64_t last_group = (Groups(shape) - 1) * shape.group_stride;
  sizes.x = Bytes(last_group + GroupRows(shape) * shape.ldx, shape.type);
  sizes.x2 = Bytes(shape.k2 == 0 ? 0 : shape.m * shape.ldx2, shape.type);
  sizes.weight = Bytes(int64_t{shape.n} * (shape.k + shape.k2), shape.type);
  sizes.bias = Bytes(shape.bias ? shape.n : 0, shape.type);
  // Where the strides allow it the residual is y itself, as in the model.
  const bool in_place = !shape.residual || shape.ldr == shape.ldy;
  sizes.residual = Bytes(in_place ? 0 : shape.m * shape.ldr, shape.y_type);
  sizes.y = Bytes(shape.m * shape.ldy, shape.y_type);
  for (const auto& product : products) {
    sizes.workspace = std::max(sizes.workspace, product->workspace_bytes());
  }
  return sizes;
}

LinearBuffers Layout(const LinearShape& shape, const Sizes& sizes, unsigned char* data,
                     void** workspace) {
  const auto take = [&data](size_t bytes) {
    unsigned char* const at = data;
    data += bytes;
    return bytes == 0 ? nullptr : at;
  };
  LinearBuffers buffers;
  buffers.x = take(sizes.x);
  buffers.x2 = take(sizes.x2);
  buffers.weight = take(sizes.weight);
  buffers.bias = take(sizes.bias);
  buffers.residual = take(sizes.residual);
  buffers.y = take(sizes.y);
  if (shape.residual && buffers.residual == nullptr) buffers.residual = buffers.y;
  *workspace = take(sizes.workspace);
  return buffers;
}

void FillRandom(DType type, void* data, size_t bytes, cudaStream_t stream) {
  auto* const words = static_cast<uint32_t*>(data);
  if (type == DType::kBf16) {
    FillRandomKernel<__nv_bfloat16><<<kBlocks, kThreads, 0, stream>>>(words, bytes / 4);
  } else {
    FillRandomKernel<__half><<<kBlocks, kThreads, 0, stream>>>(words, bytes / 4);
  }
}

// Tells products apart by the bits of their result.
class Fingerprints {
 public:
  Fingerprints(const LinearShape& shape, const LinearBuffers& buffers, const Sizes& sizes,
               void* workspace, unsigned long long* sum, cudaStream_t stream)
      : shape_(shape),
        buffers_(buffers),
        sizes_(sizes),
        workspace_(workspace),
        sum_(sum),
        stream_(stream) {}

  Status Of(const LinearProduct& product, unsigned long long* fingerprint) const {
    FillRandom(shape_.type, buffers_.y, sizes_.y, stream_);  // what a residual in place starts from
    DEEPENCODER_RETURN(product.Launch(buffers_, workspace_, sizes_.workspace, stream_));
    DEEPENCODER_CUDA_RETURN(cudaMemsetAsync(sum_, 0, sizeof(*sum_), stream_));
    FingerprintKernel<<<kBlocks, kThreads, 0, stream_>>>(static_cast<const uint32_t*>(buffers_.y),
                                                         sizes_.y / 4, sum_);
    DEEPENCODER_CUDA_RETURN(cudaGetLastError());
    DEEPENCODER_CUDA_RETURN(
        cudaMemcpyAsync(fingerprint, sum_, sizeof(*sum_), cudaMemcpyDeviceToHost, stream_));
    DEEPENCODER_CUDA_RETURN(cudaStreamSynchronize(stream_));
    return {};
  }

 private:
  const LinearShape& shape_;
  const LinearBuffers& buffers_;
  const Sizes& sizes_;
  void* workspace_;
  unsigned long long* sum_;
  cudaStream_t stream_;
};

}  // namespace

Status MeasureScratch::Reserve(size_t bytes, DType type) {
  if (bytes <= bytes_ && type == type_) return {};
  if (bytes > bytes_) {
    Release();
    if (const cudaError_t error = cudaMalloc(&data_, bytes); error != cudaSuccess) {
      data_ = nullptr;
      cudaGetLastError();  // an allocation that fails leaves the context usable
      return CudaStatus(error, "cudaMalloc of measurement buffers", __FILE__, __LINE__);
    }
    bytes_ = bytes;
  }
  type_ = type;
  FillRandom(type, data_, bytes_, nullptr);
  DEEPENCODER_CUDA_RETURN(cudaGetLastError());
  DEEPENCODER_CUDA_RETURN(cudaDeviceSynchronize());
  return {};
}

void MeasureScratch::Release() {
  if (data_ != nullptr) cudaFree(data_);
  data_ = nullptr;
  bytes_ = 0;
}

Status MeasureProducts(const LinearShape& shape, const LinearProducts& products,
                       const LinearProduct& reference, MeasureScratch& scratch, Measured* best) {
  const Sizes sizes = BufferSizes(shape, products);
  DEEPENCODER_RETURN(scratch.Reserve(sizes.total() + 512, shape.type));
  void* workspace = nullptr;
  const LinearBuffers buffers = Layout(shape, sizes, scratch.data(), &workspace);
  Stream stream;
  Event begin, end;
  DEEPENCODER_RETURN(stream.Init());
  DEEPENCODER_RETURN(begin.Init());
  DEEPENCODER_RETURN(end.Init());
  // Behind the buffers, of which the workspace may have any size.
  auto* const sum =
      reinterpret_cast<unsigned long long*>(scratch.data() + (sizes.total() + 255) / 256 * 256);
  const Fingerprints fingerprints(shape, buffers, sizes, workspace, sum, stream.get());
  unsigned long long wanted = 0;
  DEEPENCODER_RETURN(fingerprints.Of(reference, &wanted));
  // Mean time of `runs` launches.
  const auto time = [&](const LinearProduct& product, int runs, float* milliseconds) -> Status {
    DEEPENCODER_CUDA_RETURN(cudaEventRecord(begin.get(), stream.get()));
    for (int i = 0; i < runs; ++i) {
      DEEPENCODER_RETURN(product.Launch(buffers, workspace, sizes.workspace, stream.get()));
    }
    DEEPENCODER_CUDA_RETURN(cudaEventRecord(end.get(), stream.get()));
    DEEPENCODER_CUDA_RETURN(cudaEventSynchronize(end.get()));
    DEEPENCODER_CUDA_RETURN(cudaEventElapsedTime(milliseconds, begin.get(), end.get()));
    *milliseconds /= static_cast<float>(runs);
    return {};
  };

  std::vector<Measured> measured;
  Status failure = InvalidArgument("no product to measure");
  for (const auto& product : products) {
    Measured result{product, 0};
    unsigned long long bits = 0;
    // This first launch also loads the product's kernel.
    Status status = fingerprints.Of(*product, &bits);
    if (status.ok() && bits != wanted) continue;
    if (status.ok()) status = time(*product, kFirstRuns, &result.milliseconds);
    if (!status.ok()) {
      failure = status;
      if (cudaStreamSynchronize(stream.get()) != cudaSuccess)
        return failure;  // the context is lost
      cudaGetLastError();
      continue;
    }
    measured.push_back(std::move(result));
  }
  if (measured.empty()) return failure;
  std::sort(measured.begin(), measured.end(),
            [](const Measured& a, const Measured& b) { return a.milliseconds < b.milliseconds; });
  measured.resize(std::min(measured.size(), kFinalists));
  for (Measured& finalist : measured) finalist.milliseconds = std::numeric_limits<float>::max();
  for (int round = 0; round < kFinalRounds; ++round) {
    for (Measured& finalist : measured) {
      float milliseconds = 0;
      DEEPENCODER_RETURN(time(*finalist.product, kFinalRuns, &milliseconds));
      finalist.milliseconds = std::min(finalist.milliseconds, milliseconds);
    }
  }
  *best = *std::min_element(
      measured.begin(), measured.end(),
      [](const Measured& a, const Measured& b) { return a.milliseconds < b.milliseconds; });
  return {};
}

}  // namespace deepencoder::kernels
