// Where a call's time went, in its trailing metadata: the header server-timing as W3C Server Timing writes
// it, in milliseconds.
//
//   server-timing: decode;dur=4.812, views;dur=3.701, queue;dur=0.187, compute;dur=211.802, assemble;dur=0.009, total;dur=220.833
#pragma once

#include <string>

#include "absl/time/time.h"
#include "server/engine/engine.h"

namespace deepencoder {

inline constexpr char kServerTimingKey[] = "server-timing";

// `total`: from the call's arrival to its answer. `stages`: null if no image was encoded.
std::string FormatServerTiming(const StageSeconds* stages, absl::Duration total);

}  // namespace deepencoder
