#include "server/rpc/admin_service.h"

#include "server/rpc/client_identity.h"
#include "server/rpc/request_id.h"
#include "server/rpc/status.h"

namespace deepencoder {

grpc::ServerUnaryReactor* AdminService::ReloadModel(grpc::CallbackServerContext* context,
                                                    const v1::ReloadModelRequest* request,
                                                    v1::ReloadModelResponse* response) {
  TakeRequestId(*context);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // The response and the reactor live until Finish, whatever the client does meanwhile.
  reload_(request->model(), IdentityOf(*context, operators_),
          [reactor, response](const absl::StatusOr<ReloadReport>& report) {
            if (report.ok()) {
              response->set_model(report->folder);
              response->set_old_weights_fingerprint(report->old_fingerprint);
              response->set_new_weights_fingerprint(report->new_fingerprint);
              response->set_seconds(report->seconds);
            }
            reactor->Finish(ToGrpcStatus(report.status()));
          });
  return reactor;
}

}  // namespace deepencoder
