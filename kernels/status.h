// How launchers and the CUDA backend report errors: a code and a sentence. No exceptions, no exit.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

namespace deepencoder::kernels {

enum class Code {
  kOk = 0,
  kInvalidArgument = 1,    // the caller's fault: null, misaligned, wrong type, shape or device
  kUnsupported = 2,        // valid, but no kernel for it on this GPU
  kResourceExhausted = 3,  // out of device or pinned memory
  kDevice = 4,             // a CUDA or cuBLAS call failed; sticky errors lose the context
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

// cudaErrorMemoryAllocation becomes kResourceExhausted, everything else kDevice; names call and
// place.
inline Status CudaStatus(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return {};
  return {error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kDevice,
          std::string(call) + " at " + file + ":" + std::to_string(line) + ": " +
              cudaGetErrorString(error)};
}

}  // namespace deepencoder::kernels

// Returns from the enclosing function, which returns Status, if the call fails.
#define DEEPENCODER_CUDA_RETURN(call)                                                    \
  do {                                                                                   \
    if (const cudaError_t cuda_error_ = (call); cuda_error_ != cudaSuccess)              \
      return ::deepencoder::kernels::CudaStatus(cuda_error_, #call, __FILE__, __LINE__); \
  } while (0)
#define DEEPENCODER_RETURN(expression)                                                        \
  do {                                                                                        \
    if (::deepencoder::kernels::Status status_ = (expression); !status_.ok()) return status_; \
  } while (0)
