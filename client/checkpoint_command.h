// `deepencoder checkpoint ...`: looks at checkpoint folders and makes synthetic ones, without a
// server.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace deepencoder {

// `args` are the words after "checkpoint". Results go to `out`, errors to `err`. Returns the exit
// code: 0 done, 1 failed (or a checkpoint that would not load), 2 wrong usage.
int RunCheckpointCommand(const std::vector<std::string>& args, std::ostream& out,
                         std::ostream& err);

}  // namespace deepencoder
