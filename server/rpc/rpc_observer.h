// Hears of calls; metrics implement it. Every method is called from gRPC's threads and engine threads,
// must be thread-safe and quick.
#pragma once

#include <grpcpp/support/status_code_enum.h>

#include <cstdint>
#include <string_view>

namespace deepencoder {

// The calls that are counted: all but probes and those that are never served.
enum class Method : uint8_t {
  kEncodeImage,
  kEncodeImages,
  kGetModelInfo,
  kModelInfer,
  kServerMetadata,
  kModelMetadata,
  kModelConfig,
  kRegisterRegion,
  kUnregisterRegion,
  kSystemSharedMemoryStatus,
  kSystemSharedMemoryRegister,
  kSystemSharedMemoryUnregister,
};
inline constexpr Method kMethods[] = {Method::kEncodeImage,
                                      Method::kEncodeImages,
                                      Method::kGetModelInfo,
                                      Method::kModelInfer,
                                      Method::kServerMetadata,
                                      Method::kModelMetadata,
                                      Method::kModelConfig,
                                      Method::kRegisterRegion,
                                      Method::kUnregisterRegion,
                                      Method::kSystemSharedMemoryStatus,
                                      Method::kSystemSharedMemoryRegister,
                                      Method::kSystemSharedMemoryUnregister};
std::string_view Name(Method method);

inline constexpr int kStatusCodes = 17;        // OK = 0 to UNAUTHENTICATED = 16
std::string_view Name(grpc::StatusCode code);  // "RESOURCE_EXHAUSTED"

// Why a call had no valid token; the label of deepencoder_auth_failures_total.
enum class AuthFailure : uint8_t { kMissing, kMalformed, kUnknown };
inline constexpr int kAuthFailureKinds = 3;
std::string_view Name(AuthFailure failure);

// Why a connection was closed as soon as it was accepted; the label of
// deepencoder_connections_refused_total.
enum class ConnectionRefusal : uint8_t { kLimit, kAddress, kDescriptors };
inline constexpr int kConnectionRefusals = 3;
std::string_view Name(ConnectionRefusal why);

class RpcObserver {
 public:
  virtual ~RpcObserver() = default;
  virtual void OnCallStarted(Method method) = 0;
  virtual void OnCallEnded(Method method, grpc::StatusCode code) = 0;
  // A call was answered after this time; of EncodeImages each image.
  virtual void OnAnswered(Method method, double seconds) = 0;
  // One image of an EncodeImages call ended with this code.
  virtual void OnStreamImage(grpc::StatusCode code) = 0;
  // A call was refused before it came to a service.
  virtual void OnAuthFailure(AuthFailure failure) = 0;
  // New total of open connections.
  virtual void OnConnections(int64_t open) = 0;
  virtual void OnConnectionRefused(ConnectionRefusal why) = 0;
  // A call was given up since its client did not take its replies.
  virtual void OnStalledReply() = 0;
};

}  // namespace deepencoder
