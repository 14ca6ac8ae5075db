// What gRPC itself reports, such as a handshake that failed, and Protobuf, such as a string of a message that is
// no UTF-8, as lines of our log.
#pragma once

#include "server/log.h"

namespace deepencoder {

// From now on, for the whole process. `logger` must live as long. At most some lines a second, since any
// client can cause them; the next one after says how many were left out.
void ForwardGrpcLog(const Logger* logger);

}  // namespace deepencoder
