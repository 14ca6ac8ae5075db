// Makes a device's backend and slots, smaller where memory is short.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "encoder/backend/backend.h"
#include "server/engine/device_pool.h"

namespace deepencoder {

struct PoolOptions {
  BackendOptions backend;
  int slots = 2;  // wanted; two let one batch's copies run beside the other's computing
  // Buckets are given up, largest first, down to this largest one before slots are: below it a batch
  // loses more than a second slot wins.
  int least_bucket = 8;
  bool may_shrink = true;  // false: all of it, or RESOURCE_EXHAUSTED
};

using CreateBackend =
    std::function<absl::StatusOr<std::unique_ptr<Backend>>(const BackendOptions&)>;

// Calls `create` with options.backend, and makes the slots. Where one does not fit (RESOURCE_EXHAUSTED)
// it starts again without the largest bucket, and with fewer slots at last, unless it must not shrink.
// Every step is told to `log`.
// Errors: INVALID_ARGUMENT (no buckets, or slots < 1); RESOURCE_EXHAUSTED if not even one slot of the
// smallest bucket fits; any other of `create` or CreateSlot.
absl::StatusOr<DeviceSlots> BuildPool(const CreateBackend& create, const PoolOptions& options,
                                      const std::function<void(const std::string&)>& log);

}  // namespace deepencoder
