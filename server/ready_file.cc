#include "server/ready_file.h"

#include <cstdio>
#include <fstream>

namespace deepencoder {

absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& grpc_addresses,
                            const std::string& metrics_address, const std::string& admin_address) {
  const std::string temporary = path + ".new";
  {
    std::ofstream file(temporary);
    for (const std::string& address : grpc_addresses) file << "grpc=" << address << "\n";
    if (!metrics_address.empty()) file << "metrics=" << metrics_address << "\n";
    if (!admin_address.empty()) file << "admin=" << admin_address << "\n";
    if (!file.flush()) return absl::UnavailableError("--ready-file: cannot write " + temporary);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError("--ready-file: cannot write " + path);
  }
  return absl::OkStatus();
}

}  // namespace deepencoder
