#include "encoder/cpu/attention.h"

#include "encoder/model/config.h"

namespace deepencoder::cpu {

AttentionShape WindowShape() {
  return {.rows = kWindow, .columns = kWindow, .width = kSamWidth, .relative = true};
}

AttentionShape SamGlobalShape(int grid) {
  return {.rows = grid, .columns = grid, .width = kSamWidth, .relative = true};
}

AttentionShape ClipShape(int output_grid) {
  return {
      .rows = 1, .columns = output_grid * output_grid + 1, .width = kClipWidth, .relative = false};
}

}  // namespace deepencoder::cpu
