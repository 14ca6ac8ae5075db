#include "server/rpc/rpc_observer.h"

namespace deepencoder {

std::string_view Name(Method method) {
  switch (method) {
    case Method::kEncodeImage:
      return "EncodeImage";
    case Method::kEncodeImages:
      return "EncodeImages";
    case Method::kGetModelInfo:
      return "GetModelInfo";
    case Method::kModelInfer:
      return "ModelInfer";
    case Method::kServerMetadata:
      return "ServerMetadata";
    case Method::kModelMetadata:
      return "ModelMetadata";
    case Method::kModelConfig:
      return "ModelConfig";
    case Method::kRegisterRegion:
      return "RegisterRegion";
    case Method::kUnregisterRegion:
      return "UnregisterRegion";
    case Method::kSystemSharedMemoryStatus:
      return "SystemSharedMemoryStatus";
    case Method::kSystemSharedMemoryRegister:
      return "SystemSharedMemoryRegister";
    case Method::kSystemSharedMemoryUnregister:
      return "SystemSharedMemoryUnregister";
  }
  return "unknown";
}

std::string_view Name(grpc::StatusCode code) {
  static constexpr std::string_view kNames[kStatusCodes] = {"OK",
                                                            "CANCELLED",
                                                            "UNKNOWN",
                                                            "INVALID_ARGUMENT",
                                                            "DEADLINE_EXCEEDED",
                                                            "NOT_FOUND",
                                                            "ALREADY_EXISTS",
                                                            "PERMISSION_DENIED",
                                                            "RESOURCE_EXHAUSTED",
                                                            "FAILED_PRECONDITION",
                                                            "ABORTED",
                                                            "OUT_OF_RANGE",
                                                            "UNIMPLEMENTED",
                                                            "INTERNAL",
                                                            "UNAVAILABLE",
                                                            "DATA_LOSS",
                                                            "UNAUTHENTICATED"};
  return code >= 0 && code < kStatusCodes ? kNames[code] : "UNKNOWN";
}

std::string_view Name(AuthFailure failure) {
  switch (failure) {
    case AuthFailure::kMissing:
      return "missing";
    case AuthFailure::kMalformed:
      return "malformed";
    case AuthFailure::kUnknown:
      return "unknown";
  }
  return "unknown";
}

std::string_view Name(ConnectionRefusal why) {
  switch (why) {
    case ConnectionRefusal::kLimit:
      return "limit";
    case ConnectionRefusal::kAddress:
      return "address";
    case ConnectionRefusal::kDescriptors:
      return "descriptors";
  }
  return "unknown";
}

}  // namespace deepencoder
