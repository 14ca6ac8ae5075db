#include "server/rpc/client_identity.h"

#include <arpa/inet.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>
#include <netinet/in.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "server/rpc/authenticator.h"

namespace deepencoder {
namespace {

constexpr std::string_view kIpv6 = "ipv6:";
// gRPC escapes the brackets of an IPv6 address, as URIs want it, in some versions.
constexpr std::string_view kOpen[] = {"%5B", "["}, kClose[] = {"%5D", "]"};
constexpr size_t kMaxIdentity = 256;  // bytes; a certificate's subject may be of any length

std::optional<std::string> NetworkOf(std::string text) {
  text.resize(std::min(text.find('%'), text.size()));  // the zone of a link-local address
  in6_addr address{};
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1) return std::nullopt;
  std::fill(std::begin(address.s6_addr) + 8, std::end(address.s6_addr), 0);
  char network[INET6_ADDRSTRLEN];
  if (inet_ntop(AF_INET6, &address, network, sizeof(network)) == nullptr) return std::nullopt;
  return std::string(network) + "/64";
}

std::optional<std::string> TokenName(const grpc::ServerContextBase& context,
                                     const Authenticator* authenticator) {
  if (authenticator == nullptr) return std::nullopt;
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end()) return std::nullopt;
  return authenticator->NameOf({found->second.data(), found->second.size()});
}

std::optional<std::string> CertificateSubject(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer == nullptr || !peer->IsPeerAuthenticated()) return std::nullopt;
  for (const char* property : {GRPC_X509_SUBJECT_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    const std::vector<grpc::string_ref> values = peer->FindPropertyValues(property);
    if (!values.empty()) return std::string(values.front().data(), values.front().size());
  }
  return std::nullopt;
}

}  // namespace

std::string AddressOf(std::string_view peer) {
  if (!peer.starts_with("ipv4:") && !peer.starts_with(kIpv6)) {
    return std::string(peer.substr(0, peer.find(':')));  // unix: whoever may open the socket
  }
  std::string_view host = peer.substr(kIpv6.size(), peer.rfind(':') - kIpv6.size());
  if (peer.starts_with(kIpv6)) {
    for (const std::string_view open : kOpen) {
      if (host.starts_with(open)) host.remove_prefix(open.size());
    }
    for (const std::string_view close : kClose) {
      if (host.ends_with(close)) host.remove_suffix(close.size());
    }
    if (auto network = NetworkOf(std::string(host))) return *network;
  }
  return std::string(host);
}

std::string IdentityOf(const grpc::ServerContextBase& context, const Authenticator* authenticator) {
  std::string identity;
  if (auto name = TokenName(context, authenticator)) {
    identity = "token:" + *name;
  } else if (auto subject = CertificateSubject(context)) {
    identity = "certificate:" + *subject;
  } else {
    identity = "address:" + AddressOf(context.peer());
  }
  identity.resize(std::min(identity.size(), kMaxIdentity));
  return identity;
}

}  // namespace deepencoder
