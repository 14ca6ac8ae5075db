// One EncodeImages call: reads images while its window has room, hands them to the engine, writes each
// reply when it is there.
//
//   read -> (window full: stop reading) -> engine -> replies queue -> write -> window has room again
//
// A place in the window is held from the read to the end of the write, so a client that does not read
// its replies stops its own stream and nothing else. A place among the server's requests is held while images
// are at work: a stream that is silent takes nothing from other clients, and how much one has at work is
// bounded by the limits of a client (LimitedEngine).
#pragma once

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "server/engine/mutex.h"
#include "server/rpc/call_context.h"
#include "server/rpc/call_trace.h"
#include "server/rpc/request_limit.h"

namespace deepencoder {

class EncodeStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                     public std::enable_shared_from_this<EncodeStream> {
 public:
  // Told when the call is over; the registry of open streams.
  using Closed = std::function<void(EncodeStream*)>;

  // Reading begins at once. The stream owns itself until gRPC is done with it.
  static std::shared_ptr<EncodeStream> Start(const RpcContext* rpc,
                                             std::shared_ptr<const Serving> serving,
                                             grpc::CallbackServerContext* context, Closed closed);

  // Reads no more; images in flight are answered, then the call ends with UNAVAILABLE.
  void Drain();

 private:
  EncodeStream(const RpcContext* rpc, std::shared_ptr<const Serving> serving,
               grpc::CallbackServerContext* context, Closed closed);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // What to ask of gRPC next; decided under the lock, done after it is released.
  struct Steps {
    bool read = false;
    bool write = false;
    bool finish = false;
    grpc::Status status;
  };
  Steps NextSteps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const Steps& steps);

  void HandleRequest(const grpc::ByteBuffer& message);

  // An image is at work until EndImage. Errors: RequestLimit::Take's.
  absl::Status BeginImage();
  void EndImage();
  // The answer to an image that is at work.
  void Answer(const std::string& image_id, absl::Time arrived, const Timeline* timeline,
              absl::StatusOr<EncodeResult> result,
              const std::optional<RegionWindow>& window = std::nullopt);
  void Reply(const std::string& image_id, absl::Time arrived, const Timeline* timeline,
             absl::StatusOr<EncodeResult> result,
             const std::optional<RegionWindow>& window = std::nullopt);

  const RpcContext* const rpc_;
  const std::shared_ptr<const Serving> serving_;
  const Closed closed_;
  grpc::CallbackServerContext* const context_;  // until OnDone
  const std::string request_id_;
  const std::string client_;
  CallTrace trace_;
  const absl::Time deadline_;
  const FindRegion find_region_;
  const std::shared_ptr<CancelFlag> cancel_ = std::make_shared<CancelFlag>();
  std::shared_ptr<EncodeStream> self_;  // until OnDone

  grpc::ByteBuffer incoming_;  // gRPC's while a read is under way
  grpc::ByteBuffer outgoing_;  // gRPC's while a write is under way

  Mutex mutex_;
  std::deque<grpc::ByteBuffer> replies_ ABSL_GUARDED_BY(mutex_);
  int held_ ABSL_GUARDED_BY(mutex_) = 0;               // places of the window
  int at_work_ ABSL_GUARDED_BY(mutex_) = 0;            // images
  RequestLimit::Place place_ ABSL_GUARDED_BY(mutex_);  // while one is at work
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool no_more_reads_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) =
      false;  // cancelled, or a write failed: replies have no reader
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::StatusCode code_ ABSL_GUARDED_BY(mutex_) = grpc::StatusCode::OK;
};

}  // namespace deepencoder
