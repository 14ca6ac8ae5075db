// gRPC 1.51 joins its poller, which may sleep for 10 seconds, when its last object goes: so the library is
// held until the process ends.
#pragma once

#include <grpc/grpc.h>

namespace deepencoder {

inline void HoldGrpc() {
  [[maybe_unused]] static const bool held = [] {
    grpc_init();
    return true;
  }();
}

}  // namespace deepencoder
