#include "server/backend_factory.h"

namespace deepencoder {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(bool cuda, const Checkpoint& checkpoint,
                                                     const BackendOptions& options) {
  return cuda ? CreateCudaBackend(checkpoint, options) : CreateCpuBackend(checkpoint, options);
}

}  // namespace deepencoder
