// `deepencoder completion`: scripts that complete the program's words in a shell.
#pragma once

#include <string>
#include <vector>

namespace deepencoder::client {

// `args` are the words after "completion". Returns the exit status (commands.h).
int RunCompletion(const std::vector<std::string>& args);

}  // namespace deepencoder::client
