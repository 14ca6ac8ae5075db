#include "server/rpc/admin_service.h"

#include "server/rpc/client_identity.h"
#include "server/rpc/request_id.h"
#include "server/rpc/small_message.h"
#include "server/rpc/status.h"

namespace deepencoder {

grpc::ServerUnaryReactor* AdminService::ReloadModel(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* reply) {
  TakeRequestId(*context);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  v1::ReloadModelRequest request;
  if (absl::Status status = ParseSmallMessage(*bytes, &request); !status.ok()) {
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }
  // The reply and the reactor live until Finish, whatever the client does meanwhile.
  reload_(request.model(), IdentityOf(*context, operators_),
          [reactor, reply](const absl::StatusOr<ReloadReport>& report) {
            if (report.ok()) {
              v1::ReloadModelResponse response;
              response.set_model(report->folder);
              response.set_old_weights_fingerprint(report->old_fingerprint);
              response.set_new_weights_fingerprint(report->new_fingerprint);
              response.set_seconds(report->seconds);
              *reply = SerializeResponse(response);
            }
            reactor->Finish(ToGrpcStatus(report.status()));
          });
  return reactor;
}

}  // namespace deepencoder
