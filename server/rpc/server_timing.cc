#include "server/rpc/server_timing.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

// Whole microseconds: printing those is much cheaper than printing a double, and every call does it.
void Append(std::string_view name, int64_t microseconds, std::string& text) {
  if (!text.empty()) text += ", ";
  text += name;
  absl::StrAppend(&text, ";dur=", microseconds / 1000, ".",
                  absl::Dec(microseconds % 1000, absl::kZeroPad3));
}

}  // namespace

std::string FormatServerTiming(const StageSeconds* stages, absl::Duration total) {
  std::string text;
  text.reserve(160);
  if (stages != nullptr) {
    for (const auto& [stage, seconds] : {std::pair{Stage::kDecode, stages->decode},
                                         {Stage::kViews, stages->views},
                                         {Stage::kQueue, stages->queue},
                                         {Stage::kCompute, stages->compute},
                                         {Stage::kAssemble, stages->assemble}}) {
      Append(Name(stage), static_cast<int64_t>(seconds * 1e6), text);
    }
  }
  Append("total", std::max<int64_t>(0, absl::ToInt64Microseconds(total)), text);
  return text;
}

}  // namespace deepencoder
