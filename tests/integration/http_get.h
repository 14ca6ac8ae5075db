// GET over a plain socket.
#pragma once

#include <string>

namespace deepencoder {

// `address` is IPV4:PORT. The whole answer, headers included; empty if there is none.
std::string HttpGet(const std::string& address, const std::string& path);

}  // namespace deepencoder
