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

// In network order. Of a socket that takes both kinds, ::ffff:a.b.c.d is one too.
std::optional<uint32_t> Ipv4Of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr;
  }
  if (address.ss_family != AF_INET6) return std::nullopt;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&v6)) return std::nullopt;
  uint32_t mapped;
  std::memcpy(&mapped, v6.s6_addr + kMappedAt, sizeof(mapped));
  return mapped;
}

}  // namespace

std::optional<uint64_t> PeerNetwork(const sockaddr_storage& peer) {
  if (const auto v4 = Ipv4Of(peer)) return OfIpv4(*v4);
  if (peer.ss_family != AF_INET6) return std::nullopt;
  const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  uint64_t network;
  std::memcpy(&network, address.s6_addr, sizeof(network));
  return network;
}

bool IsLoopback(const sockaddr_storage& address) {
  if (const auto v4 = Ipv4Of(address)) return ntohl(*v4) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
  return address.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace deepencoder
