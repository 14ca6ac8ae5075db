#include "server/ready_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "encoder/weights/atomic_file.h"

namespace deepencoder {

absl::Status RemoveReadyFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error))) {
    return absl::OkStatus();
  }
  std::filesystem::remove(path, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError("--ready-file: cannot remove " + path +
                                " of an earlier run: " + error.message());
}

absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& grpc_addresses,
                            const std::string& metrics_address, const std::string& admin_address) {
  std::string text;
  for (const std::string& address : grpc_addresses) absl::StrAppend(&text, "grpc=", address, "\n");
  if (!metrics_address.empty()) absl::StrAppend(&text, "metrics=", metrics_address, "\n");
  if (!admin_address.empty()) absl::StrAppend(&text, "admin=", admin_address, "\n");
  absl::Status status = WriteFileAtomically(path, text);
  if (status.ok()) return status;
  return {status.code(),
          absl::StrCat("--ready-file: cannot write ", std::string(status.message()))};
}

}  // namespace deepencoder
