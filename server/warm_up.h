// A first image through every view side, before a model serves.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "encoder/model/geometry.h"
#include "server/engine/device_pool.h"
#include "server/engine/engine.h"

namespace deepencoder {

// Encodes a synthetic image, large enough for tiles, in so many of `modes` that every view side is used,
// and looks at every value.
// Errors: the engine's; INTERNAL if a value is not finite (wrong weights, or a broken device).
absl::Status WarmUp(Engine& engine, std::span<const Mode> modes);

// The same image through every slot and view side of a device that serves no engine yet.
// Errors: the backend's; INTERNAL if a value is not finite.
absl::Status Probe(const DeviceSlots& device, std::span<const Mode> modes);

}  // namespace deepencoder
