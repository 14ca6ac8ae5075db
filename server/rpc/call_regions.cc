#include "server/rpc/call_regions.h"

#include <grpcpp/server_context.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deepencoder {

bool IsLocalPeer(std::string_view peer) {
  // "unix:path", "ipv4:127.0.0.1:port", "ipv6:[::1]:port", which newer releases of gRPC escape as in a
  // URI. An IPv4 client of an IPv6 socket is shown as IPv4.
  for (const char* local :
       {"unix:", "unix-abstract:", "inproc:", "ipv4:127.", "ipv6:[::1]:", "ipv6:%5B::1%5D:"}) {
    if (peer.starts_with(local)) return true;
  }
  return false;
}

absl::Status CheckSharing(const RegionTable* table, const grpc::ServerContextBase& context) {
  if (table == nullptr) {
    return absl::UnimplementedError(
        "shared memory is off (the server's --shared-memory); send and receive the contents in the "
        "messages");
  }
  if (!IsLocalPeer(context.peer())) {
    return absl::PermissionDeniedError(
        "shared memory is for clients of the server's host, on a unix socket or the loopback "
        "interface");
  }
  return absl::OkStatus();
}

FindRegion RegionsOf(RegionTable* table, RegionTable::Scope scope,
                     const grpc::ServerContextBase& context) {
  return [table, scope,
          &context](const std::string& name) -> absl::StatusOr<std::shared_ptr<const Region>> {
    if (absl::Status status = CheckSharing(table, context); !status.ok()) return status;
    return table->Find(scope, name);
  };
}

absl::StatusOr<SharedBytes> ReadRange(const v1::SharedRange& range, int64_t max_bytes,
                                      const FindRegion& find) {
  const auto region = find(range.handle());
  if (!region.ok()) return region.status();
  if (range.size() > static_cast<uint64_t>(max_bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat("the image has ", range.size(),
                                                     " bytes; the limit is ", max_bytes,
                                                     " (the server's --max-image-bytes)"));
  }
  return (*region)->Read(range.offset(), range.size());
}

absl::StatusOr<std::optional<RegionWindow>> ReplyWindowOf(const v1::EncodeImageRequest& request,
                                                          const FindRegion& find) {
  if (!request.has_reply_range()) return std::nullopt;
  const v1::SharedRange& range = request.reply_range();
  auto region = find(range.handle());
  if (!region.ok()) return region.status();
  if (absl::Status status = (*region)->CheckRange(range.offset(), range.size()); !status.ok()) {
    return status;
  }
  return RegionWindow{*std::move(region), range.offset(), range.size()};
}

namespace {

class WindowMemory final : public ReplyMemory {
 public:
  WindowMemory(std::shared_ptr<const Region> region, std::span<std::byte> bytes)
      : region_(std::move(region)), bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return bytes_; }
  void Abandon() override { region_->Retire(); }

 private:
  const std::shared_ptr<const Region> region_;
  const std::span<std::byte> bytes_;
};

}  // namespace

std::shared_ptr<ReplyMemory> ReplyMemoryIn(const RegionWindow& window) {
  constexpr uintptr_t kAlignment = 16;
  const auto memory = window.region->Memory(window.offset, window.size);
  if (!memory.ok() || memory->empty()) return nullptr;
  if (reinterpret_cast<uintptr_t>(memory->data()) % kAlignment != 0) return nullptr;
  return std::make_shared<WindowMemory>(window.region, *memory);
}

absl::Status WriteRows(const EncodeResult& result, const RegionWindow& window, uint64_t at) {
  if (at > window.size || result.bytes > window.size - at) {
    return absl::InvalidArgumentError(absl::StrCat("the rows have ", at + result.bytes,
                                                   " bytes or more; the range for them in "
                                                   "shared memory region ",
                                                   window.region->spec().name, " has ",
                                                   window.size));
  }
  return window.region->Write(window.offset + at, std::span(result.data.get(), result.bytes));
}

}  // namespace deepencoder
