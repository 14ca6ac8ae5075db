#include "kernels/linear_measure.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/linear_operands.h"

namespace deepencoder::kernels {
namespace {

// Every product runs this often, then the fastest few again in turns; the least time counts.
constexpr int kFirstRuns = 2;
constexpr size_t kFinalists = 4;
constexpr int kFinalRounds = 3;
constexpr int kFinalRuns = 4;

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

// A product's result on one kind of data.
using Fingerprints = std::array<uint64_t, 2>;

// On both kinds of data, in the order of kData.
constexpr OperandData kData[] = {OperandData::kRandom, OperandData::kCancelling};

// Fingerprints of every product whose launch works, in the order of `products`; nothing for the others.
Status FingerprintAll(const LinearProducts& products, LinearOperands& operands, cudaStream_t stream,
                      std::vector<std::optional<Fingerprints>>* all, Status* failure) {
  all->assign(products.size(), Fingerprints{});
  for (size_t kind = 0; kind < std::size(kData); ++kind) {
    DEEPENCODER_RETURN(operands.Fill(kData[kind], stream));
    for (size_t i = 0; i < products.size(); ++i) {
      if (!(*all)[i].has_value()) continue;
      Status status = operands.Fingerprint(*products[i], stream, &(*(*all)[i])[kind]);
      if (status.ok()) continue;
      (*all)[i].reset();
      *failure = std::move(status);
      if (cudaStreamSynchronize(stream) != cudaSuccess) return *failure;  // the context is lost
      cudaGetLastError();
    }
  }
  return {};
}

// Times launches by events.
class Stopwatch {
 public:
  Status Init() {
    DEEPENCODER_RETURN(begin_.Init());
    return end_.Init();
  }
  // Mean time of `runs` launches.
  Status Time(const LinearProduct& product, const LinearOperands& operands, int runs,
              cudaStream_t stream, float* milliseconds) const {
    DEEPENCODER_CUDA_RETURN(cudaEventRecord(begin_.get(), stream));
    for (int i = 0; i < runs; ++i) DEEPENCODER_RETURN(operands.Launch(product, stream));
    DEEPENCODER_CUDA_RETURN(cudaEventRecord(end_.get(), stream));
    DEEPENCODER_CUDA_RETURN(cudaEventSynchronize(end_.get()));
    DEEPENCODER_CUDA_RETURN(cudaEventElapsedTime(milliseconds, begin_.get(), end_.get()));
    *milliseconds /= static_cast<float>(runs);
    return {};
  }

 private:
  Event begin_, end_;
};

bool Faster(const Measured& a, const Measured& b) { return a.milliseconds < b.milliseconds; }

}  // namespace

Status MeasureScratch::Reserve(size_t bytes) {
  if (bytes <= bytes_) return {};
  Release();
  void* data = nullptr;
  if (const cudaError_t error = cudaMalloc(&data, bytes); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // an allocation that fails leaves the context usable
    return CudaStatus(error, "cudaMalloc of measurement buffers", __FILE__, __LINE__);
  }
  data_ = static_cast<unsigned char*>(data);
  bytes_ = bytes;
  return {};
}

void MeasureScratch::Release() {
  if (data_ != nullptr) cudaFree(data_);
  data_ = nullptr;
  bytes_ = 0;
}

Status MeasureProducts(const LinearShape& shape, const LinearProducts& products, size_t reference,
                       MeasureScratch& scratch, Measured* best) {
  DEEPENCODER_RETURN(scratch.Reserve(LinearOperands::Bytes(shape, products)));
  LinearOperands operands(shape, products, scratch.data());
  Stream stream;
  Stopwatch watch;
  DEEPENCODER_RETURN(stream.Init());
  DEEPENCODER_RETURN(watch.Init());

  Status failure;
  std::vector<std::optional<Fingerprints>> fingerprints;
  // This first launch of each product also loads its kernel.
  DEEPENCODER_RETURN(FingerprintAll(products, operands, stream.get(), &fingerprints, &failure));
  if (!fingerprints[reference].has_value()) return failure;

  DEEPENCODER_RETURN(operands.Fill(OperandData::kRandom, stream.get()));
  std::vector<Measured> measured;
  for (size_t i = 0; i < products.size(); ++i) {
    if (fingerprints[i] != fingerprints[reference]) continue;
    Measured result{products[i], 0};
    DEEPENCODER_RETURN(
        watch.Time(*products[i], operands, kFirstRuns, stream.get(), &result.milliseconds));
    measured.push_back(std::move(result));
  }
  std::sort(measured.begin(), measured.end(), Faster);
  measured.resize(std::min(measured.size(), kFinalists));
  for (Measured& finalist : measured) finalist.milliseconds = std::numeric_limits<float>::max();
  for (int round = 0; round < kFinalRounds; ++round) {
    for (Measured& finalist : measured) {
      float milliseconds = 0;
      DEEPENCODER_RETURN(
          watch.Time(*finalist.product, operands, kFinalRuns, stream.get(), &milliseconds));
      finalist.milliseconds = std::min(finalist.milliseconds, milliseconds);
    }
  }
  *best = *std::min_element(measured.begin(), measured.end(), Faster);
  return {};
}

}  // namespace deepencoder::kernels
