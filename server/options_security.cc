// Rows of the options about who may connect, call and how much.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/option_setters.h"
#include "server/options_table.h"
#include "server/values.h"

namespace deepencoder {
namespace {

using namespace option_setters;  // NOLINT(google-build-using-namespace): made for this table

constexpr absl::Duration kDay = absl::Hours(24);
constexpr int64_t kMillion = 1'000'000;

}  // namespace

void AddConnectionOptions(std::vector<OptionSpec>& table) {
  const char* group = "Connections (0: no bound)";
  table.push_back(
      {group, "max-connections", "N", "1024",
       "Most connections at a time; one beyond is closed at once. At most what the "
       "process' limit of descriptors leaves room for, beside decode workers, regions of "
       "shared memory and 32 connections to --admin-listen.",
       Integer(&ServerOptions::max_connections, 1, kMillion)});
  table.push_back({group, "max-connections-per-address", "N", "512",
                   "Most connections at a time from one address (of IPv6: one /64 network); one "
                   "beyond is closed at once. Behind a proxy all clients have one address.",
                   Integer(&ServerOptions::max_connections_per_address, 1, kMillion)});
  table.push_back({group, "max-streams", "N", "1024",
                   "Most calls at a time of one connection; clients queue what is beyond.",
                   Integer(&ServerOptions::max_streams, 1, kMillion)});
  table.push_back({group, "max-metadata", "SIZE", "16KiB", "Most metadata of a call.",
                   Bytes(&ServerOptions::max_metadata, kKiB, kMiB)});
  table.push_back({group, "keepalive", "DURATION", "1m",
                   "A silent client is asked whether it is there after so long, and given up 20 s "
                   "later.",
                   Duration(&ServerOptions::keepalive, kDay)});
  table.push_back({group, "max-connection-idle", "DURATION", "15m",
                   "A connection without calls is closed after so long.",
                   Duration(&ServerOptions::max_connection_idle, kDay)});
  table.push_back({group, "max-connection-age", "DURATION", "1h",
                   "A connection takes no more calls after so long, give or take a tenth, and its "
                   "client makes another: so that clients spread over new servers.",
                   Duration(&ServerOptions::max_connection_age, kDay)});
  table.push_back({group, "max-connection-age-grace", "DURATION", "10m",
                   "What calls get to end after that. Then the connection is closed, so that a "
                   "request that is never sent to its end is not held for ever.",
                   Duration(&ServerOptions::max_connection_age_grace, kDay)});
  table.push_back({group, "reply-timeout", "DURATION", "2m",
                   "A call whose client takes no whole reply for so long is given up.",
                   Duration(&ServerOptions::reply_timeout, kDay)});
  table.push_back(
      {group, "reply-memory", "SIZE", "1GiB",
       "Most bytes of replies that were not taken yet; beyond, the call that has waited "
       "longest for its client is given up.",
       Bytes(&ServerOptions::reply_memory, 0, 1024 * kGiB)});
}

void AddSecurityOptions(std::vector<OptionSpec>& table) {
  const char* group = "Who may call, and how much (files are read again when they change)";
  table.push_back(
      {group, "tls-cert", "FILE", "",
       "PEM: the server's certificate, then those between it and a root. With it, every "
       "HOST:PORT of --listen and --admin-listen is served over TLS (1.2, 1.3) and nothing else.",
       Text(&ServerOptions::tls_cert)});
  table.push_back({group, "tls-key", "FILE", "",
                   "PEM: its private key, not encrypted, not readable by everybody.",
                   Text(&ServerOptions::tls_key)});
  table.push_back({group, "tls-client-ca", "FILE", "",
                   "PEM: whom clients' certificates must come from; with it, a client without one "
                   "gets no connection.",
                   Text(&ServerOptions::tls_client_ca)});
  table.push_back({group, "token-file", "FILE", "",
                   "Bearer tokens, one of which every call but a health check must bring, on every "
                   "address: lines NAME:SECRET or NAME:sha256:HEX. Not readable by everybody.",
                   Text(&ServerOptions::token_file)});
  table.push_back({group, "admin-token-file", "FILE", "",
                   "Bearer tokens of those who operate the server, as in --token-file: with it, "
                   "every call on --admin-listen must bring one. With TLS too, that may then be an "
                   "address which other machines reach.",
                   Text(&ServerOptions::admin_token_file)});
  table.push_back({group, "client-images-per-second", "N", "0",
                   "Images a second of one client, which is a token's name, else a certificate's "
                   "subject, else an address; 0: no limit.",
                   Integer(&ServerOptions::client_images_per_second, 0, kMillion)});
  table.push_back({group, "client-bytes-per-second", "SIZE", "0",
                   "Bytes of images a second of one client; 0: no limit.",
                   Bytes(&ServerOptions::client_bytes_per_second, 0, 1024 * kGiB)});
  table.push_back({group, "client-images-in-flight", "N", "0",
                   "Images of one client that are accepted and not yet answered; 0: no limit.",
                   Integer(&ServerOptions::client_images_in_flight, 0, kMillion)});
}

namespace {

// Whoever gets in there changes the weights: other machines only with a token, and only encrypted.
absl::Status CheckAdmin(const ServerOptions& options) {
  if (!options.admin_token_file.empty()) {
    if (options.admin_listen.empty()) {
      return absl::InvalidArgumentError("--admin-token-file needs --admin-listen");
    }
    if (options.admin_token_file == options.token_file) {
      return absl::InvalidArgumentError(
          "--admin-token-file and --token-file must differ: callers would operate the server");
    }
  }
  if (options.admin_listen.empty() || IsLocalAddress(options.admin_listen)) return absl::OkStatus();
  std::vector<std::string> missing;
  if (options.admin_token_file.empty()) missing.emplace_back("--admin-token-file");
  if (options.tls_cert.empty()) missing.emplace_back("--tls-cert and --tls-key");
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--admin-listen: '", options.admin_listen, "' can be reached from other machines and needs ",
      absl::StrJoin(missing, ", "), ": give them, or unix:PATH or a loopback address"));
}

}  // namespace

absl::Status CheckSecurity(const ServerOptions& options) {
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  }
  if (options.tls_cert.empty() && !options.tls_client_ca.empty()) {
    return absl::InvalidArgumentError("--tls-client-ca needs --tls-cert and --tls-key");
  }
  return CheckAdmin(options);
}

}  // namespace deepencoder
