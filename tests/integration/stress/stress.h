// Every good reply under load equals, by hash, the reply that the same image gets alone.
//
// Many clients at once send what a server meets: modes, sizes and types mixed, files that are broken,
// calls that are cancelled, deadlines that are too near. Only what clients see is looked at, so any server
// can be asked, wherever it runs. Whom a full server turns away comes back when it says. Clients that share memory
// use it again as soon as a call is answered, whether it went well or not, as the protocol allows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace deepencoder {

struct StressOptions {
  std::string server;                                       // gRPC address
  std::vector<std::pair<std::string, std::string>> images;  // name and file
  std::vector<std::string> modes;                           // names; empty: all that are served
  int items = 24;  // kinds of requests (image, mode, type, tiles), chosen by `seed`
  int clients = 64;
  int sharing = 0;  // so many of them share memory with the server, which must be on this host
  absl::Duration duration = absl::Seconds(30);
  uint64_t seed = 1;
};

struct StressReport {
  int64_t calls = 0;                     // each has had one answer
  std::map<std::string, int64_t> good;   // replies that are right, by the kind of their request
  std::map<std::string, int64_t> codes;  // of all calls
  // Replies that differ, or codes that the request cannot lead to: how many of what kind and mode, and
  // the first ones in words.
  std::map<std::string, int64_t> wrong_by_kind;
  std::vector<std::string> wrong;

  int64_t right() const;
  int64_t wrong_count() const;
  std::string ToJson() const;
};

// Errors: those of the first calls, which go out alone.
absl::StatusOr<StressReport> RunStress(const StressOptions& options);

}  // namespace deepencoder
