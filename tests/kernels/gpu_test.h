// What tests of kernels share: skipping without a GPU, owned device memory, checks of CUDA calls.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/status.h"

#define ASSERT_CUDA(call)                                                   \
  do {                                                                      \
    const cudaError_t cuda_error_ = (call);                                 \
    ASSERT_EQ(cuda_error_, cudaSuccess) << cudaGetErrorString(cuda_error_); \
  } while (0)
#define EXPECT_CUDA(call)                                                   \
  do {                                                                      \
    const cudaError_t cuda_error_ = (call);                                 \
    EXPECT_EQ(cuda_error_, cudaSuccess) << cudaGetErrorString(cuda_error_); \
  } while (0)
// Of an expression that gives a kernels::Status.
#define ASSERT_OK(expression)                                             \
  do {                                                                    \
    const ::deepencoder::kernels::Status status_asserted_ = (expression); \
    ASSERT_TRUE(status_asserted_.ok()) << status_asserted_.message();     \
  } while (0)
#define REQUIRE_GPU() \
  if (!::deepencoder::kernels::testing::HasGpu()) GTEST_SKIP() << "no GPU"

namespace deepencoder::kernels::testing {

inline bool HasGpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

// Tests of this kind need a GPU and are skipped where there is none.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
      static_cast<void>(cudaGetLastError());
      GTEST_SKIP() << "needs a GPU: "
                   << (error != cudaSuccess ? cudaGetErrorString(error) : "none found");
    }
  }
  // A kernel's fault shows in the test that caused it.
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaGetLastError());
  }
};

// Device memory of `count` elements, poisoned with bytes 0xFF: NaN in every floating type.
template <typename T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t count) : count_(count) {
    EXPECT_CUDA(cudaMalloc(&data_, count * sizeof(T)));
    Poison();
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) { Set(values); }
  ~DeviceBuffer() { EXPECT_CUDA(cudaFree(data_)); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return data_; }
  size_t size() const { return count_; }
  void Poison() { EXPECT_CUDA(cudaMemset(data_, 0xFF, count_ * sizeof(T))); }
  void Set(const std::vector<T>& values) {
    EXPECT_CUDA(
        cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  // Waits for the device first.
  std::vector<T> Get() const {
    std::vector<T> values(count_);
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

}  // namespace deepencoder::kernels::testing
