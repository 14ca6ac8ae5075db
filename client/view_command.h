// `deepencoder view`: what becomes of an image before it is encoded, without a server.
#pragma once

#include <string>
#include <vector>

namespace deepencoder::client {

// `args` are the words after "view". Returns the exit status (commands.h).
int RunView(const std::vector<std::string>& args);

}  // namespace deepencoder::client
