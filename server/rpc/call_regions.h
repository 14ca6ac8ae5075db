// How a call reaches its client's shared memory regions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deepencoder/v1/vision_encoder.pb.h"
#include "server/engine/engine.h"
#include "server/shared_memory/region_table.h"

namespace grpc {
class ServerContextBase;
}

namespace deepencoder {

// Whether gRPC's text for a peer names this host: a unix socket or the loopback interface. A client of
// another host that guesses a name could otherwise have memory here read and written.
bool IsLocalPeer(std::string_view peer);

// Errors: UNIMPLEMENTED (`table` is null: the server shares no memory), PERMISSION_DENIED (not local).
absl::Status CheckSharing(const RegionTable* table, const grpc::ServerContextBase& context);

// The region that a request calls so. Errors: CheckSharing's, NOT_FOUND.
using FindRegion =
    std::function<absl::StatusOr<std::shared_ptr<const Region>>(const std::string& name)>;
// For as long as `context` lives; looks at nothing before it is called.
FindRegion RegionsOf(RegionTable* table, RegionTable::Scope scope,
                     const grpc::ServerContextBase& context);

// What the request says lies in shared memory. Errors: `find`'s, Region::Read's, RESOURCE_EXHAUSTED (over
// `max_bytes`).
absl::StatusOr<SharedBytes> ReadRange(const v1::SharedRange& range, int64_t max_bytes,
                                      const FindRegion& find);

// Where the reply's rows go; nothing: into the reply. Errors: `find`'s, Region::CheckRange's.
absl::StatusOr<std::optional<RegionWindow>> ReplyWindowOf(const v1::EncodeImageRequest& request,
                                                          const FindRegion& find);

// The window as memory that rows can be written to at once; null if it is not mapped, or lies so that rows would not
// begin at a multiple of 16 bytes.
std::shared_ptr<ReplyMemory> ReplyMemoryIn(const RegionWindow& window);

// The rows of `result` into the window, from byte `at` of it.
// Errors: INVALID_ARGUMENT (too small), Region::Write's.
absl::Status WriteRows(const EncodeResult& result, const RegionWindow& window, uint64_t at);

}  // namespace deepencoder
