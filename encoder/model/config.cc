#include "encoder/model/config.h"

#include <algorithm>
#include <iterator>

namespace deepencoder {

bool ModelConfig::IsGlobal(int block) const {
  return std::find(global_blocks.begin(), global_blocks.end(), block) != global_blocks.end();
}

bool IsViewSide(int side) {
  return std::find(std::begin(kViewSides), std::end(kViewSides), side) != std::end(kViewSides);
}

}  // namespace deepencoder
