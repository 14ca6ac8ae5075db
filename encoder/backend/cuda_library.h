// The CUDA backend's shared library, loaded once a process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "encoder/backend/cuda_abi.h"

namespace deepencoder {

// Looks beside the program, in ../lib beside it, then by the loader's rules (LD_LIBRARY_PATH,
// cache). The environment variable DEEPENCODER_CUDA_LIBRARY names a file instead. Never unloaded:
// CUDA does not like it. Errors: UNAVAILABLE with the loader's words, FAILED_PRECONDITION for
// another ABI version. Thread-safe.
absl::StatusOr<const DeCudaApi*> LoadCudaLibrary();

// The device's address on the PCI bus; empty if the library is absent, too old to say, or fails.
std::string CudaPciBusId(int device);

// Bytes of the device's memory that nobody holds; nothing as above.
std::optional<uint64_t> CudaFreeMemory(int device);

// The version and source revision that it was built from; empty as above.
std::string CudaBuild();

// deepencoder_cuda_encode_ahead; null as above.
decltype(&deepencoder_cuda_encode_ahead) CudaEncodeAhead();

absl::Status ToStatus(DeCode code, const DeError& error);

}  // namespace deepencoder
