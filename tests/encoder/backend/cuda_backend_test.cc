// The loader and the backend's table against a library without a GPU: one of today, and one from before
// the symbols that came later. A library is loaded once a process, so each is a program of its own.
#include <gtest/gtest.h>

#include <cstdlib>

#include "encoder/backend/backend.h"
#include "encoder/backend/cuda_library.h"

namespace deepencoder {
namespace {

TEST(CudaBackendTest, KnowsItsAddressOnTheBusIfTheLibraryDoes) {
  setenv("DEEPENCODER_CUDA_LIBRARY", FAKE_CUDA, 1);
  const absl::StatusOr<int> devices = CudaDeviceCount();
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(*devices, 1);
  EXPECT_EQ(CudaPciBusId(0), FAKE_CUDA_ADDRESS);
}

}  // namespace
}  // namespace deepencoder
