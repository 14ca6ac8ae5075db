// A device that computes next to nothing: every row of a view is made of a hash over the view's pixels. So
// a test can send thousands of images, and rows that went to the wrong image, or came from the wrong one,
// still show.
#pragma once

#include <memory>

#include "encoder/backend/backend.h"

namespace deepencoder {

// Reads all of `checkpoint`, as a device does that loads it, and uses nothing of it.
absl::StatusOr<std::unique_ptr<Backend>> CreateHashedBackend(const Checkpoint& checkpoint,
                                                             const BackendOptions& options);

}  // namespace deepencoder
