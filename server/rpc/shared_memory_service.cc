#include "server/rpc/shared_memory_service.h"

#include <optional>
#include <utility>

#include "server/rpc/small_message.h"

namespace deepencoder {

SharedMemoryService::SharedMemoryService(RpcContext rpc) : rpc_(std::move(rpc)) {}

grpc::ServerUnaryReactor* SharedMemoryService::RegisterRegion(grpc::CallbackServerContext* context,
                                                              const grpc::ByteBuffer* request,
                                                              grpc::ByteBuffer* response) {
  return AnswerAtOnce(rpc_, *context, Method::kRegisterRegion, [&]() -> absl::Status {
    if (absl::Status status = CheckSharing(rpc_.regions, *context); !status.ok()) return status;
    return AnswerSmall<v1::RegisterRegionRequest, v1::RegisterRegionResponse>(
        *request, response,
        [this](const auto& wanted, auto& region) { return Register(wanted, region); });
  });
}

absl::Status SharedMemoryService::Register(const v1::RegisterRegionRequest& request,
                                           v1::RegisterRegionResponse& response) const {
  std::optional<MemfdPlace> memfd;
  if (request.has_memfd()) {
    memfd = {.process = request.memfd().pid(), .descriptor = request.memfd().fd()};
  }
  absl::StatusOr<std::string> handle =
      rpc_.regions->RegisterHandle(request.key(), request.size(), memfd);
  if (!handle.ok()) return handle.status();
  response.set_handle(*std::move(handle));
  response.set_idle_seconds(absl::ToDoubleSeconds(rpc_.regions->limits().idle));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SharedMemoryService::UnregisterRegion(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return AnswerAtOnce(rpc_, *context, Method::kUnregisterRegion, [&]() -> absl::Status {
    if (absl::Status status = CheckSharing(rpc_.regions, *context); !status.ok()) return status;
    return AnswerSmall<v1::UnregisterRegionRequest, v1::UnregisterRegionResponse>(
        *request, response, [this](const auto& unwanted, auto& /*response*/) {
          rpc_.regions->Unregister(RegionTable::Scope::kHandle, unwanted.handle());
          return absl::OkStatus();
        });
  });
}

}  // namespace deepencoder
