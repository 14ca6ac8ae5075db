// deepencoder.v1.Admin over gRPC's callback API, raw (small_message.h); for an address of its own.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <string>
#include <utility>

#include "deepencoder/v1/admin.grpc.pb.h"
#include "server/reloader.h"
#include "server/rpc/authenticator.h"

namespace deepencoder {

// Thread-safe. Must outlive the gRPC server it is registered with.
class AdminService final : public v1::Admin::WithRawCallbackMethod_ReloadModel<v1::Admin::Service> {
 public:
  // As Reloader::Start. `by`: who asks (IdentityOf).
  using Reload =
      std::function<void(const std::string& folder, std::string by, Reloader::Done done)>;

  // `operators` knows the names of tokens; it must outlive this.
  AdminService(const Authenticator* operators, Reload reload)
      : operators_(operators), reload_(std::move(reload)) {}

  grpc::ServerUnaryReactor* ReloadModel(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* bytes,
                                        grpc::ByteBuffer* reply) override;

 private:
  const Authenticator* const operators_;
  const Reload reload_;
};

}  // namespace deepencoder
