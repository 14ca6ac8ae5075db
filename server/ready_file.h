// The file by which scripts learn that the server is up, and where.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace deepencoder {

// Where the server listens, as `name=address` lines; there complete or not at all. An empty metrics or
// admin address is left out. Errors: UNAVAILABLE naming the option.
absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& grpc_addresses,
                            const std::string& metrics_address, const std::string& admin_address);

}  // namespace deepencoder
