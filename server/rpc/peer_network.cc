#include "server/rpc/peer_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

namespace deepencoder {
namespace {

// Before an IPv4 address: no network that is given out begins with it (::/8 is reserved, RFC 4291).
constexpr uint64_t kIpv4 = uint64_t{0xFFFF} << 32;
constexpr int kMappedAt = 12;  // where ::ffff:a.b.c.d has the IPv4 address, bytes

uint64_t OfIpv4(uint32_t network_order) { return kIpv4 | ntohl(network_order); }

}  // namespace

std::optional<uint64_t> PeerNetwork(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    return OfIpv4(reinterpret_cast<const sockaddr_in&>(peer).sin_addr.s_addr);
  }
  if (peer.ss_family != AF_INET6) return std::nullopt;
  const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {  // of a socket that takes both kinds
    uint32_t mapped;
    std::memcpy(&mapped, address.s6_addr + kMappedAt, sizeof(mapped));
    return OfIpv4(mapped);
  }
  uint64_t network;
  std::memcpy(&network, address.s6_addr, sizeof(network));
  return network;
}

}  // namespace deepencoder
