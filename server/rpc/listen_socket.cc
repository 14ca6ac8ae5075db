#include "server/rpc/listen_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/peer_network.h"

namespace deepencoder {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

struct HostPort {
  std::string host;
  int port;
};

std::optional<HostPort> ParseHostPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  int port = -1;
  const char* end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port < 0 || port > 65535) return std::nullopt;
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return std::nullopt;
  return HostPort{std::string(host), port};
}

// NOT_FOUND: this machine has no such address, or no such kind of address.
absl::Status SystemError() {
  const std::string text = std::strerror(errno);
  return errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL ? absl::NotFoundError(text)
                                                         : absl::UnavailableError(text);
}

void SetOption(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof(value));
}

// [::] where that takes IPv4 too.
std::optional<sockaddr_in6> AnyAddress(const HostPort& where) {
  if (where.host != "0.0.0.0") return std::nullopt;
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<uint16_t>(where.port));
  return any;
}

}  // namespace

absl::Status CheckListenAddress(std::string_view address) {
  if (address.starts_with(kUnix)) {
    return address.size() > kUnix.size()
               ? absl::OkStatus()
               : absl::InvalidArgumentError("unix: needs a path behind it");
  }
  if (ParseHostPort(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", std::string(address), "' is no address: expected HOST:PORT, [IPV6]:PORT or unix:PATH"));
}

ListenSocket::ListenSocket(ListenSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      port_(other.port_),
      local_(other.local_),
      path_(std::exchange(other.path_, {})),
      inode_(other.inode_) {}

ListenSocket::~ListenSocket() {
  if (descriptor_ >= 0) close(descriptor_);
  struct stat file {};
  // Another server may have taken the path meanwhile.
  if (!path_.empty() && lstat(path_.c_str(), &file) == 0 && file.st_ino == inode_) {
    unlink(path_.c_str());
  }
}

absl::StatusOr<ListenSocket> ListenSocket::ListenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path of a unix socket has at most ",
                                                   sizeof(address.sun_path) - 1,
                                                   " bytes; this one has ", path.size()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  struct stat file {};
  if (lstat(path.c_str(), &file) == 0 && S_ISSOCK(file.st_mode)) {
    const ListenSocket probe(socket(AF_UNIX, kSocketFlags, 0));
    if (connect(probe.descriptor_, generic, sizeof(address)) != 0 && errno == ECONNREFUSED) {
      unlink(path.c_str());
    }
  }
  ListenSocket made(socket(AF_UNIX, kSocketFlags, 0));
  if (made.descriptor_ < 0 || bind(made.descriptor_, generic, sizeof(address)) != 0 ||
      listen(made.descriptor_, SOMAXCONN) != 0) {
    return SystemError();
  }
  if (lstat(path.c_str(), &file) == 0) made.inode_ = file.st_ino;
  made.path_ = path;
  made.local_ = true;
  return made;
}

absl::StatusOr<ListenSocket> ListenSocket::ListenTcp(const void* address, unsigned size,
                                                     int family) {
  ListenSocket made(socket(family, kSocketFlags, 0));
  if (made.descriptor_ < 0) return SystemError();
  SetOption(made.descriptor_, SOL_SOCKET, SO_REUSEADDR, 1);  // a restart need not wait
  if (family == AF_INET6) {
    const bool any = IN6_IS_ADDR_UNSPECIFIED(&static_cast<const sockaddr_in6*>(address)->sin6_addr);
    SetOption(made.descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, any ? 0 : 1);
  }
  sockaddr_storage bound{};
  socklen_t bound_size = sizeof(bound);
  if (bind(made.descriptor_, static_cast<const sockaddr*>(address), size) != 0 ||
      listen(made.descriptor_, SOMAXCONN) != 0 ||
      getsockname(made.descriptor_, reinterpret_cast<sockaddr*>(&bound), &bound_size) != 0) {
    return SystemError();
  }
  // The port lies at the same place in both families.
  made.port_ = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  made.local_ = IsLoopback(bound);
  return made;
}

absl::StatusOr<std::vector<ListenSocket>> ListenSocket::Listen(const std::string& address) {
  if (absl::Status status = CheckListenAddress(address); !status.ok()) return status;
  std::vector<ListenSocket> sockets;
  if (address.starts_with(kUnix)) {
    absl::StatusOr<ListenSocket> made = ListenUnix(address.substr(kUnix.size()));
    if (!made.ok()) return made.status();
    sockets.push_back(*std::move(made));
    return sockets;
  }
  const HostPort where = *ParseHostPort(address);
  if (const auto any = AnyAddress(where)) {
    absl::StatusOr<ListenSocket> made = ListenTcp(&*any, sizeof(*any), AF_INET6);
    if (made.ok()) {
      sockets.push_back(*std::move(made));
      return sockets;
    }
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(where.host.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> holder(found, freeaddrinfo);
  int port = where.port;
  absl::Status failure;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    reinterpret_cast<sockaddr_in*>(one->ai_addr)->sin_port = htons(static_cast<uint16_t>(port));
    absl::StatusOr<ListenSocket> made = ListenTcp(one->ai_addr, one->ai_addrlen, one->ai_family);
    if (made.ok()) {
      port = made->port_;
      sockets.push_back(*std::move(made));
    } else if (!absl::IsNotFound(made.status())) {
      return made.status();
    } else {  // no error while another family is there
      failure = absl::UnavailableError(made.status().message());
    }
  }
  if (sockets.empty()) return failure;
  return sockets;
}

}  // namespace deepencoder
