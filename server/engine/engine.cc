#include "server/engine/engine.h"

namespace deepencoder {

std::string_view Name(RejectReason reason) {
  switch (reason) {
    case RejectReason::kRequests:
      return "requests";
    case RejectReason::kImages:
      return "images";
    case RejectReason::kBytes:
      return "bytes";
    case RejectReason::kDraining:
      return "draining";
    case RejectReason::kUnhealthy:
      return "unhealthy";
    case RejectReason::kViews:
      return "views";
  }
  return "unknown";
}

std::string_view Name(DropReason reason) {
  switch (reason) {
    case DropReason::kDeadline:
      return "deadline";
    case DropReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::string_view Name(Stage stage) {
  switch (stage) {
    case Stage::kDecode:
      return "decode";
    case Stage::kViews:
      return "views";
    case Stage::kQueue:
      return "queue";
    case Stage::kCompute:
      return "compute";
    case Stage::kAssemble:
      return "assemble";
  }
  return "unknown";
}

}  // namespace deepencoder
