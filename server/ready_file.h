// The file by which scripts learn that the server is up, and where.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace deepencoder {

// Takes away a file of this name that an earlier run has left, so that nobody takes it for this one's; what is
// no regular file stays. Errors: UNAVAILABLE naming the option.
absl::Status RemoveReadyFile(const std::string& path);

// Where the server listens, as `name=address` lines; there complete or not at all. An empty metrics or
// admin address is left out. Errors: UNAVAILABLE naming the option.
absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& grpc_addresses,
                            const std::string& metrics_address, const std::string& admin_address);

}  // namespace deepencoder
