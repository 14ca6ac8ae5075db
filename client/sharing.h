// A client's memory shared with its server: images and rows of calls go through it.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/retry.h"
#include "client/shared_pool.h"
#include "deepencoder/v1/shared_memory.grpc.pb.h"
#include "deepencoder/v1/vision_encoder.pb.h"

namespace deepencoder::client {

// Thread-safe.
class Sharing : public std::enable_shared_from_this<Sharing> {
 public:
  // Makes and registers a pool: a memfd or, where the server does not see this process, a named object.
  // `call_started` and `call_ended` surround what goes on behind the caller's back, which keeps the object: what
  // they belong to must live until they are even. Errors: SharedPool::Create's, the server's.
  static absl::StatusOr<std::shared_ptr<Sharing>> Start(
      const std::shared_ptr<grpc::Channel>& channel, v1::ModelInfo info, uint64_t bytes,
      absl::Time deadline, std::function<void()> call_started, std::function<void()> call_ended);
  ~Sharing();  // tells the server
  Sharing(const Sharing&) = delete;
  Sharing& operator=(const Sharing&) = delete;

  // Moves the request's image into a block that has room for its reply too. Nothing, and the request as
  // it was, if there is no room now.
  std::optional<SharedPool::Block> Place(v1::EncodeImageRequest& request);

  // Moves the image back into the request.
  static void TakeBack(v1::EncodeImageRequest& request, const SharedPool::Block& block);

  // The reply whose rows lie in the block, which they keep.
  // Errors: INTERNAL (they cannot lie there), ToEmbeddings'.
  static absl::StatusOr<Embeddings> Collect(const v1::EncodeImageRequest& request,
                                            SharedPool::Block block,
                                            const v1::EncodeImageResponse& response);

  // Whether a call that used a block failed because of it: it is then made again without.
  static bool IsRefusal(grpc::StatusCode code);
  // After a refusal. A region that the server has forgotten (it restarted, or was not called for long) is
  // replaced in the background, again and again with pauses if that fails; otherwise nothing is shared any more.
  void OnRefusal(grpc::StatusCode code, const SharedPool::Block& block);

 private:
  struct Region {
    std::shared_ptr<SharedPool> pool;
    std::string handle;
  };
  struct Registration;

  Sharing(const std::shared_ptr<grpc::Channel>& channel, v1::ModelInfo info, uint64_t bytes,
          std::function<void()> call_started, std::function<void()> call_ended);
  absl::Status StartWith(SharedPool::Kind kind, absl::Time deadline);
  // The most bytes that the reply to this request can have.
  uint64_t ReplyBytes(const v1::EncodeImageRequest& request) const;
  // Stops using `pool`, if it is the one in use; true if this is the caller who should replace it.
  bool Drop(const std::shared_ptr<SharedPool>& pool, bool replace);
  void Replace(SharedPool::Kind kind);
  // After an attempt to replace; with the lock held.
  void ReplaceLater(SharedPool::Kind kind);

  const std::unique_ptr<v1::SharedMemory::Stub> stub_;
  const v1::ModelInfo info_;
  const uint64_t bytes_;
  const std::function<void()> call_started_, call_ended_;
  std::mutex mutex_;
  std::optional<Region> region_;
  bool replacing_ = false;
  Attempts replacements_{{.max_attempts = std::numeric_limits<int>::max()}};
  std::optional<absl::Time> replace_at_;  // by the next call then
  SharedPool::Kind replace_kind_ = SharedPool::Kind::kMemfd;
};

// Whether the call's status is the server's own answer: then it is done with the call's memory. Otherwise
// (deadline, broken connection) it may still write there.
bool IsServersAnswer(const grpc::ClientContext& context, const grpc::Status& status);

}  // namespace deepencoder::client
