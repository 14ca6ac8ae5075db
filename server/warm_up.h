// A first image through every view side, before the server says it is ready.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "encoder/model/geometry.h"
#include "server/engine/engine.h"

namespace deepencoder {

// Encodes a synthetic image, large enough for tiles, in so many of `modes` that every view side is used,
// and looks at every value.
// Errors: the engine's; INTERNAL if a value is not finite (wrong weights, or a broken device).
absl::Status WarmUp(Engine& engine, std::span<const Mode> modes);

}  // namespace deepencoder
