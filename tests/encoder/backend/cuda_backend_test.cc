// The loader and the backend's table against a library without a GPU: one of today, and one from before
// the symbols that came later. A library is loaded once a process, so each is a program of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "encoder/backend/backend.h"
#include "encoder/backend/cuda_library.h"

namespace deepencoder {
namespace {

TEST(CudaBackendTest, KnowsWhatIsBesideTheTableIfTheLibraryDoes) {
  setenv("DEEPENCODER_CUDA_LIBRARY", FAKE_CUDA, 1);
  const absl::StatusOr<int> devices = CudaDeviceCount();
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(*devices, 1);
  const std::string address = FAKE_CUDA_ADDRESS;
  EXPECT_EQ(CudaPciBusId(0), address);
  EXPECT_EQ(CudaFreeMemory(0).has_value(), !address.empty());
  EXPECT_EQ(CudaFreeMemory(0).value_or(0), address.empty() ? 0 : uint64_t{80} << 30);
  EXPECT_EQ(CudaBuild(), address.empty() ? "" : "0.0.1 (fake)");
}

}  // namespace
}  // namespace deepencoder
