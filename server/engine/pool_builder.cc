#include "server/engine/pool_builder.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace deepencoder {
namespace {

struct Attempt {
  DeviceSlots device;
  absl::Status status;  // why there are fewer slots than wanted, if so
};

Attempt Try(const CreateBackend& create, const BackendOptions& options, int slots,
            const std::function<void(const std::string&)>& log) {
  Attempt attempt;
  absl::StatusOr<std::unique_ptr<Backend>> backend = create(options);
  if (!backend.ok()) {
    attempt.status = backend.status();
    return attempt;
  }
  attempt.device.backend = *std::move(backend);
  while (static_cast<int>(attempt.device.slots.size()) < slots) {
    // Capturing a slot's graphs takes seconds: who waits for the start sees where it is.
    log(absl::StrCat("device ", options.device, ": making slot ", attempt.device.slots.size() + 1,
                     " of ", slots, " for ", options.sides.size(), " view sides x ",
                     options.batch_buckets.size(), " batch sizes"));
    absl::StatusOr<std::unique_ptr<EncoderSlot>> slot = attempt.device.backend->CreateSlot();
    if (!slot.ok()) {
      attempt.status = slot.status();
      break;
    }
    attempt.device.slots.push_back(*std::move(slot));
  }
  return attempt;
}

}  // namespace

absl::StatusOr<DeviceSlots> BuildPool(const CreateBackend& create, const PoolOptions& options,
                                      const std::function<void(const std::string&)>& log) {
  BackendOptions backend = options.backend;
  if (backend.batch_buckets.empty() || options.slots < 1) {
    return absl::InvalidArgumentError("a device needs at least one batch bucket and one slot");
  }
  while (true) {
    Attempt attempt = Try(create, backend, options.slots, log);
    const size_t made = attempt.device.slots.size();
    const std::string buckets = absl::StrJoin(backend.batch_buckets, ", ");
    if (attempt.status.ok()) {
      log(absl::StrCat("device ", backend.device, ": ", made, " slots with batch sizes ", buckets));
      return std::move(attempt.device);
    }
    if (!absl::IsResourceExhausted(attempt.status) || !options.may_shrink) return attempt.status;
    const bool smallest =
        backend.batch_buckets.size() == 1 || backend.batch_buckets.back() <= options.least_bucket;
    if (made > 0 && smallest) {
      log(absl::StrCat("device ", backend.device, ": memory is short: ", made, " of ",
                       options.slots, " slots, with batch sizes ", buckets, " (",
                       attempt.status.ToString(), ")"));
      return std::move(attempt.device);
    }
    if (backend.batch_buckets.size() == 1) return attempt.status;
    log(absl::StrCat("device ", backend.device, ": memory is short for ", options.slots,
                     " slots with batch sizes ", buckets, ": trying without ",
                     backend.batch_buckets.back(), " (", attempt.status.ToString(), ")"));
    backend.batch_buckets.pop_back();
    // `attempt` is destroyed here: its memory must be free before the next one.
  }
}

}  // namespace deepencoder
