// What one call is in a distributed trace: a span of the call, and beneath it a span for each step of its
// images. Costs a few ids where the call is not kept, nothing where there is no tracer.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/engine.h"
#include "server/rpc/rpc_observer.h"
#include "server/trace/tracer.h"

namespace deepencoder {

// Metadata keys, as W3C Trace Context names them.
inline constexpr char kTraceparentKey[] = "traceparent";
inline constexpr char kTracestateKey[] = "tracestate";

class CallTrace {
 public:
  // Reads the client's traceparent, and adds the call's own to its trailing metadata if there is a tracer.
  CallTrace(const Tracer* tracer, grpc::ServerContextBase& context, Method method,
            const std::string& request_id);

  // As 32 hex digits, for logs; empty if neither the client nor a tracer has one.
  std::string trace_id() const;

  // For a job of this call. Null if nobody keeps the call.
  std::shared_ptr<Timeline> NewTimeline() const;

  // The call's only image was answered: what follows until End is the reply. `timeline` may be null.
  void OnAnswer(std::shared_ptr<Timeline> timeline, const std::string& image_id,
                const absl::StatusOr<EncodeResult>& result);

  // One of the call's images was answered, and its reply is on its way since `answered`. Thread-safe.
  void RecordImage(const Timeline* timeline, const std::string& image_id, absl::Time arrived,
                   absl::Time answered, const absl::StatusOr<EncodeResult>& result) const;

  // The call is over. Nothing is called after it.
  void End(grpc::StatusCode code);

 private:
  // With times as the wall clock has them. SteadyNow's part from it where somebody sets the machine's clock.
  void Record(std::vector<Span> spans) const;

  bool kept() const { return tracer_ != nullptr && span_.context.sampled; }

  const Tracer* const tracer_;
  Span span_;
  std::shared_ptr<Timeline> timeline_;  // of the call's only image
  absl::Time answered_ = absl::InfiniteFuture();
  absl::Duration to_wall_;  // from SteadyNow's time, as the call begins: one for all its spans
};

}  // namespace deepencoder
