#include "client/server_flags.h"

#include <cstdlib>
#include <utility>

#include "client/commands.h"

namespace deepencoder::client {
namespace {

// Not names of the server's options: a probe runs in the server's own environment.
constexpr char kRootVariable[] = "DEEPENCODER_ROOT_CERTIFICATES";
constexpr char kCertificateVariable[] = "DEEPENCODER_CLIENT_CERTIFICATE";
constexpr char kKeyVariable[] = "DEEPENCODER_CLIENT_KEY";
constexpr char kNameVariable[] = "DEEPENCODER_SERVER_NAME";

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Stripped(const std::string& text) {
  constexpr char kBlanks[] = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

void AddServerFlags(FlagSet& flags, ServerFlags& values) {
  values.server = ServerFromEnvironment();
  flags.AddText("server", "ADDRESS",
                "host:port or unix:PATH. Default: $DEEPENCODER_SERVER, else 127.0.0.1:50051.",
                &values.server);
  AddAccessFlags(flags, values);
}

void AddAccessFlags(FlagSet& flags, ServerFlags& values) {
  values.files.root_certificates = Variable(kRootVariable);
  values.files.client_certificate = Variable(kCertificateVariable);
  values.files.client_key = Variable(kKeyVariable);
  values.files.server_name = Variable(kNameVariable);
  flags.AddSwitch("tls", "Encrypt; implied by the next three, but for a unix socket.", &values.tls);
  flags.AddText("root-certificates", "PEM",
                "Whom to trust. Default: $DEEPENCODER_ROOT_CERTIFICATES, else the system's.",
                &values.files.root_certificates);
  flags.AddText("client-certificate", "PEM",
                "Shown to the server. Default: $DEEPENCODER_CLIENT_CERTIFICATE.",
                &values.files.client_certificate);
  flags.AddText("client-key", "PEM", "Its key. Default: $DEEPENCODER_CLIENT_KEY.",
                &values.files.client_key);
  flags.AddText(
      "server-name", "NAME",
      "In the server's certificate, if not its address.\nDefault: $DEEPENCODER_SERVER_NAME.",
      &values.files.server_name);
  flags.AddText(
      "token-file", "FILE",
      "Bearer token. Default: $" + values.token_variable + " (a flag would be seen by all users).",
      &values.token_file);
}

absl::StatusOr<ClientOptions> WithServerFlags(const ServerFlags& values, ClientOptions options) {
  const TlsOptions& files = values.files;
  const bool implied = !files.root_certificates.empty() || !files.client_certificate.empty() ||
                       !files.client_key.empty();
  if (values.tls || (implied && !values.server.starts_with("unix:"))) options.tls = files;
  options.token = Stripped(Variable(values.token_variable.c_str()));
  if (values.token_file.empty()) return options;
  absl::StatusOr<Image> file = ReadImageFile(values.token_file);  // any file's bytes
  if (!file.ok()) return file.status();
  options.token = Stripped(file->encoded);
  return options;
}

}  // namespace deepencoder::client
