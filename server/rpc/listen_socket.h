// A socket that clients connect to.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deepencoder {

// "HOST:PORT", "[IPV6]:PORT" or "unix:PATH". Errors: INVALID_ARGUMENT.
absl::Status CheckListenAddress(std::string_view address);

// Listens until it is destroyed; moves only.
class ListenSocket {
 public:
  // A socket for each address that the host stands for; 0.0.0.0 is every address, of IPv6 too where
  // there is that. Port 0 takes a free one, the same for all. A socket file that nobody serves any more
  // is replaced. Errors: INVALID_ARGUMENT (no such address), UNAVAILABLE (in use, not permitted).
  static absl::StatusOr<std::vector<ListenSocket>> Listen(const std::string& address);

  ListenSocket(ListenSocket&& other) noexcept;
  ListenSocket& operator=(ListenSocket&&) = delete;
  ~ListenSocket();  // removes its socket file

  int descriptor() const { return descriptor_; }
  int port() const { return port_; }  // 0: a unix socket
  bool is_unix() const { return !path_.empty(); }
  // Only processes of this machine can reach it.
  bool is_local() const { return local_; }

 private:
  explicit ListenSocket(int descriptor) : descriptor_(descriptor) {}
  static absl::StatusOr<ListenSocket> ListenUnix(const std::string& path);
  // `size` bytes at `address` are a sockaddr.
  static absl::StatusOr<ListenSocket> ListenTcp(const void* address, unsigned size, int family);

  int descriptor_;
  int port_ = 0;
  bool local_ = false;
  std::string path_;
  ino_t inode_ = 0;  // of the file at path_ as it was made
};

}  // namespace deepencoder
