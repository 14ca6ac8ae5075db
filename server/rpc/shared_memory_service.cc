#include "server/rpc/shared_memory_service.h"

#include <optional>
#include <utility>

namespace deepencoder {

SharedMemoryService::SharedMemoryService(RpcContext rpc) : rpc_(std::move(rpc)) {}

grpc::ServerUnaryReactor* SharedMemoryService::RegisterRegion(
    grpc::CallbackServerContext* context, const v1::RegisterRegionRequest* request,
    v1::RegisterRegionResponse* response) {
  return AnswerAtOnce(rpc_, *context, Method::kRegisterRegion, [&]() -> absl::Status {
    if (absl::Status status = CheckSharing(rpc_.regions, *context); !status.ok()) return status;
    std::optional<MemfdPlace> memfd;
    if (request->has_memfd()) {
      memfd = {.process = request->memfd().pid(), .descriptor = request->memfd().fd()};
    }
    absl::StatusOr<std::string> handle =
        rpc_.regions->RegisterHandle(request->key(), request->size(), memfd);
    if (!handle.ok()) return handle.status();
    response->set_handle(*std::move(handle));
    response->set_idle_seconds(absl::ToDoubleSeconds(rpc_.regions->limits().idle));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SharedMemoryService::UnregisterRegion(
    grpc::CallbackServerContext* context, const v1::UnregisterRegionRequest* request,
    v1::UnregisterRegionResponse* /*response*/) {
  return AnswerAtOnce(rpc_, *context, Method::kUnregisterRegion, [&]() -> absl::Status {
    if (absl::Status status = CheckSharing(rpc_.regions, *context); !status.ok()) return status;
    rpc_.regions->Unregister(RegionTable::Scope::kHandle, request->handle());
    return absl::OkStatus();
  });
}

}  // namespace deepencoder
