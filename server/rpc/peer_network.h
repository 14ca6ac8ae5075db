// Who is behind a connection, as far as its address says.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>

namespace deepencoder {

// A number that stands for an IPv4 address, or for the network of 64 bits of an IPv6 one, since one host has
// as many addresses of it as it likes. Nothing for a unix socket, which has no address.
std::optional<uint64_t> PeerNetwork(const sockaddr_storage& peer);

}  // namespace deepencoder
