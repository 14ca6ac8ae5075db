// Which views an image gives in a mode: arithmetic only, no pixels.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "encoder/model/geometry.h"

namespace deepencoder {

// The whole image resampled to width x height once, then cut or pasted into square views.
struct ResizeJob {
  int width, height;  // of the resampled image, pixels
  int side;           // of each view
  int columns, rows;  // views cut from it, row by row; 1 x 1 for a global view
  int left, top;      // where it is pasted in the view (letterbox; else 0)
  int views() const { return columns * rows; }
};

struct ViewPlan {
  Mode mode;
  int image_width, image_height;  // after orientation
  TileGrid tiles;
  std::vector<ResizeJob>
      jobs;  // tiles (if any), then the global view: the order of SequenceLayout::views
  int views() const;
};

// Colour of the border of a letterbox.
inline constexpr uint8_t kLetterboxGray = 127;

// Errors: INVALID_ARGUMENT if max_tiles is out of [kMinMaxTiles, kMaxMaxTiles], a side is < 1, or the letterbox
// would round a side to 0 (says which).
absl::StatusOr<ViewPlan> PlanViews(int width, int height, Mode mode, int max_tiles);

}  // namespace deepencoder
