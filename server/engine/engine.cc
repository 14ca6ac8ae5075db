#include "server/engine/engine.h"

namespace deepencoder {

int64_t StoredBytes(const EncodeJob& job) {
  const auto* raw = std::get_if<RawPixels>(&job.image);
  return static_cast<int64_t>(raw != nullptr ? raw->rgb.bytes.size()
                                             : std::get<EncodedFile>(job.image).file.bytes.size());
}

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
    case RejectReason::kClientRate:
      return "client_rate";
    case RejectReason::kClientBytes:
      return "client_bytes";
    case RejectReason::kClientImages:
      return "client_images";
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
