// `deepencoder diff`: how far two embeddings of an image are apart.
#pragma once

#include <string>
#include <vector>

namespace deepencoder::client {

// `args` are the words after "diff". Returns the exit status (commands.h).
int RunDiff(const std::vector<std::string>& args);

}  // namespace deepencoder::client
