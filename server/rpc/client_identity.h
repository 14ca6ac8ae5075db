// Which client a call is from, for limits and logs.
#pragma once

#include <string>
#include <string_view>

namespace grpc {
class ServerContextBase;
}

namespace deepencoder {

class Authenticator;

// The name of the call's token, else the subject of the client's certificate, else the address it comes
// from without the port: "token:NAME", "certificate:SUBJECT", "address:ADDRESS". `authenticator` may be
// null.
std::string IdentityOf(const grpc::ServerContextBase& context, const Authenticator* authenticator);

// A peer as gRPC writes it ("ipv4:10.0.0.7:4711", "ipv6:%5B2001:db8::1%5D:4711", "unix:"), without the
// port. Of IPv6 the network of 64 bits, since one host has as many addresses of it as it likes.
std::string AddressOf(std::string_view peer);

}  // namespace deepencoder
