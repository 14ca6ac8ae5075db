// Who is behind a connection, as far as its address says.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>

namespace deepencoder {

// A number that stands for an IPv4 address, or for the network of 64 bits of an IPv6 one, since one host has
// as many addresses of it as it likes. Nothing for a unix socket, which has no address.
std::optional<uint64_t> PeerNetwork(const sockaddr_storage& peer);

// An IP address that no other machine can have: 127.0.0.0/8, also as an IPv6 socket has it, or ::1.
bool IsLoopback(const sockaddr_storage& address);

}  // namespace deepencoder
