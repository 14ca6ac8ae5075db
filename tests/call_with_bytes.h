// Calls of clients that send what no generated code would.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <future>
#include <memory>
#include <string>

namespace deepencoder {

// A call of any method with any bytes as its message.
inline grpc::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel,
                                  const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(channel);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;
  grpc::ClientContext context;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &reply,
                 [&ended](const grpc::Status& status) { ended.set_value(status); });
  return ended.get_future().get();
}

}  // namespace deepencoder
