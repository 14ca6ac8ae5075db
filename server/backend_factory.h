// The device that is served by. Its own file, so that a test program can put a device that fails on
// command in its place when it is linked; the server itself has no such thing in it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "encoder/backend/backend.h"
#include "encoder/weights/checkpoint.h"

namespace deepencoder {

// CreateCudaBackend or CreateCpuBackend.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(bool cuda, const Checkpoint& checkpoint,
                                                     const BackendOptions& options);

}  // namespace deepencoder
