#include "encoder/backend/cuda_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "encoder/backend/backend.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

// The library is looked for once a process, so every test of this program sees the same answer.
class CudaLibraryTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("DEEPENCODER_CUDA_LIBRARY", "/nowhere/libdeepencoder_cuda.so", 1);
  }
};

TEST_F(CudaLibraryTest, AbsentLibraryIsUnavailableAndNamed) {
  const auto api = LoadCudaLibrary();
  EXPECT_EQ(api.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(api.status().message()), HasSubstr("/nowhere/libdeepencoder_cuda.so"));
  EXPECT_EQ(CudaDeviceCount().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CudaLibraryTest, CodesBecomeStatuses) {
  DeError error = {};
  std::strcpy(error.message, "why");
  EXPECT_TRUE(ToStatus(DE_OK, error).ok());
  EXPECT_EQ(ToStatus(DE_INVALID_ARGUMENT, error), absl::InvalidArgumentError("why"));
  EXPECT_EQ(ToStatus(DE_UNSUPPORTED, error), absl::UnimplementedError("why"));
  EXPECT_EQ(ToStatus(DE_RESOURCE_EXHAUSTED, error), absl::ResourceExhaustedError("why"));
  EXPECT_EQ(ToStatus(DE_DEVICE, error), absl::InternalError("why"));
}

}  // namespace
}  // namespace deepencoder
