// What a port asks of those who connect (TLS) and of those who call (tokens).
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/rpc/authenticator.h"
#include "server/security/reloaded.h"
#include "server/security/tls_files.h"

namespace deepencoder {

// Of one port. `tls` null: plain text; each new connection is made with the files of that time. TLS 1.2
// and 1.3. With a client_ca, clients must show a certificate that leads to it. `authenticator` null:
// every call is let in. Both must outlive the server.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Reloaded<TlsFiles>* tls,
                                                               const Authenticator* authenticator);

}  // namespace deepencoder
