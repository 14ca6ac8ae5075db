#include "client/sharing.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/wire.h"

namespace deepencoder::client {
namespace {

// A server of this host answers at once, or not at all.
constexpr absl::Duration kCallTimeout = absl::Seconds(5);
constexpr absl::Duration kFarewellTimeout = absl::Seconds(1);
// Every answer of the server carries it.
constexpr char kRequestIdKey[] = "x-request-id";

const std::string& ImageOf(const v1::EncodeImageRequest& request) {
  return request.has_raw() ? request.raw().rgb() : request.encoded();
}

const v1::SharedRange& ImageRangeOf(const v1::EncodeImageRequest& request) {
  return request.has_raw() ? request.raw().rgb_range() : request.encoded_range();
}

void SetRange(const std::string& handle, uint64_t offset, uint64_t size, v1::SharedRange& range) {
  range.set_handle(handle);
  range.set_offset(offset);
  range.set_size(size);
}

}  // namespace

bool IsServersAnswer(const grpc::ClientContext& context, const grpc::Status& status) {
  return status.ok() || context.GetServerTrailingMetadata().contains(kRequestIdKey);
}

struct Sharing::Registration {
  std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();
  std::shared_ptr<SharedPool> pool;
  v1::RegisterRegionRequest request;
  v1::RegisterRegionResponse response;

  Registration(std::shared_ptr<SharedPool> of, absl::Time deadline) : pool(std::move(of)) {
    context->set_deadline(absl::ToChronoTime(deadline));
    request.set_size(pool->size());
    if (pool->kind() == SharedPool::Kind::kNamed) {
      request.set_key("/" + pool->name());
      return;
    }
    request.set_key(pool->name());
    request.mutable_memfd()->set_pid(getpid());
    request.mutable_memfd()->set_fd(pool->descriptor());
  }
};

Sharing::Sharing(const std::shared_ptr<grpc::Channel>& channel, v1::ModelInfo info, uint64_t bytes,
                 std::function<void()> call_started, std::function<void()> call_ended)
    : stub_(v1::SharedMemory::NewStub(channel)),
      info_(std::move(info)),
      bytes_(bytes),
      call_started_(std::move(call_started)),
      call_ended_(std::move(call_ended)) {}

Sharing::~Sharing() {
  if (!region_) return;
  // Without it the server would see the lock go, a little later.
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kFarewellTimeout));
  v1::UnregisterRegionRequest request;
  request.set_handle(region_->handle);
  v1::UnregisterRegionResponse response;
  (void)stub_->UnregisterRegion(&context, request, &response);
}

absl::StatusOr<std::shared_ptr<Sharing>> Sharing::Start(
    const std::shared_ptr<grpc::Channel>& channel, v1::ModelInfo info, uint64_t bytes,
    absl::Time deadline, std::function<void()> call_started, std::function<void()> call_ended) {
  const std::shared_ptr<Sharing> made(
      new Sharing(channel, std::move(info), bytes, std::move(call_started), std::move(call_ended)));
  absl::Status status = made->StartWith(SharedPool::Kind::kMemfd, deadline);
  // In another container than this process, or older than memfds here.
  if (absl::IsNotFound(status) || absl::IsUnimplemented(status)) {
    status = made->StartWith(SharedPool::Kind::kNamed, deadline);
  }
  if (!status.ok()) return status;
  return made;
}

absl::Status Sharing::StartWith(SharedPool::Kind kind, absl::Time deadline) {
  auto pool = SharedPool::Create(bytes_, kind);
  if (!pool.ok()) return pool.status();
  Registration registration(*pool, deadline);
  const grpc::Status status = stub_->RegisterRegion(registration.context.get(),
                                                    registration.request, &registration.response);
  (*pool)->Unlink();  // the server has it open, or will not have it
  if (!status.ok()) return ToStatus(status);
  const std::lock_guard lock(mutex_);
  region_ = Region{*std::move(pool), registration.response.handle()};
  return absl::OkStatus();
}

uint64_t Sharing::ReplyBytes(const v1::EncodeImageRequest& request) const {
  const v1::Mode mode = request.mode() == v1::MODE_UNSPECIFIED ? v1::MODE_GUNDAM : request.mode();
  uint64_t rows = 0;
  for (const v1::ModeInfo& served : info_.modes()) {
    if (served.mode() != mode) continue;
    rows = served.rows();
    if (served.tile_side() == 0) continue;
    // c x r tiles add 10 r (10 c + 1) rows, and r is at most c r.
    const uint64_t tiles =
        request.has_max_tiles() ? request.max_tiles() : info_.default_max_tiles();
    rows += 110 * tiles;
  }
  const uint64_t element = request.dtype() == v1::DTYPE_FP32 ? 4 : 2;
  return rows * info_.embedding_width() * element;
}

std::optional<SharedPool::Block> Sharing::Place(v1::EncodeImageRequest& request) {
  const std::string& image = ImageOf(request);
  const uint64_t reply = ReplyBytes(request);
  // The server refuses these, and says why, when it gets them whole.
  if (image.empty() || reply == 0 || image.size() > info_.limits().max_image_bytes()) {
    return std::nullopt;
  }
  std::optional<Region> region;
  bool replace = false;
  {
    const std::lock_guard lock(mutex_);
    region = region_;
    replace = !region && !replacing_ && replace_at_ && absl::Now() >= *replace_at_;
    if (replace) replacing_ = true;
  }
  if (replace) Replace(replace_kind_);
  if (!region) return std::nullopt;
  std::optional<SharedPool::Block> block =
      region->pool->Take(SharedPool::Rounded(image.size()) + reply);
  if (!block) {
    if (region->pool->worn() && Drop(region->pool, true)) Replace(region->pool->kind());
    return std::nullopt;
  }
  std::memcpy(block->data(), image.data(), image.size());
  const uint64_t image_bytes = image.size();
  if (request.has_raw()) {
    request.mutable_raw()->clear_rgb();
    SetRange(region->handle, block->offset(), image_bytes,
             *request.mutable_raw()->mutable_rgb_range());
  } else {
    SetRange(region->handle, block->offset(), image_bytes, *request.mutable_encoded_range());
  }
  SetRange(region->handle, block->offset() + SharedPool::Rounded(image_bytes), reply,
           *request.mutable_reply_range());
  return block;
}

void Sharing::TakeBack(v1::EncodeImageRequest& request, const SharedPool::Block& block) {
  std::string image(block.data(), ImageRangeOf(request).size());
  if (request.has_raw()) {
    request.mutable_raw()->clear_rgb_range();
    *request.mutable_raw()->mutable_rgb() = std::move(image);
  } else {
    *request.mutable_encoded() = std::move(image);
  }
  request.clear_reply_range();
}

absl::StatusOr<Embeddings> Sharing::Collect(const v1::EncodeImageRequest& request,
                                            SharedPool::Block block,
                                            const v1::EncodeImageResponse& response) {
  if (response.shared_bytes() > request.reply_range().size()) {
    return absl::InternalError(absl::StrCat("the server's reply has ", response.shared_bytes(),
                                            " bytes in shared memory, where ",
                                            request.reply_range().size(), " had room"));
  }
  block.Keep(request.reply_range().offset() - block.offset(), response.shared_bytes());
  auto rows = std::make_shared<const SharedPool::Block>(std::move(block));
  return ToEmbeddings(response, {rows->data(), response.shared_bytes()}, rows);
}

bool Sharing::IsRefusal(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::NOT_FOUND:            // the server has forgotten the region
    case grpc::StatusCode::FAILED_PRECONDITION:  // or cannot use it
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNIMPLEMENTED:  // it shares none any more
      return true;
    default:
      return false;
  }
}

void Sharing::OnRefusal(grpc::StatusCode code, const SharedPool::Block& block) {
  if (Drop(block.pool(), code == grpc::StatusCode::NOT_FOUND)) Replace(block.pool()->kind());
}

bool Sharing::Drop(const std::shared_ptr<SharedPool>& pool, bool replace) {
  const std::lock_guard lock(mutex_);
  if (!region_ || region_->pool != pool) return false;  // another call was first
  // Its lock goes with the last block: the server then lets go of it too.
  region_.reset();
  if (!replace || replacing_) return false;
  replacing_ = true;
  return true;
}

void Sharing::Replace(SharedPool::Kind kind) {
  auto pool = SharedPool::Create(bytes_, kind);
  if (!pool.ok()) {
    const std::lock_guard lock(mutex_);
    ReplaceLater(kind);
    return;
  }
  call_started_();
  auto registration = std::make_shared<Registration>(*std::move(pool), absl::Now() + kCallTimeout);
  stub_->async()->RegisterRegion(
      registration->context.get(), &registration->request, &registration->response,
      [self = shared_from_this(), registration](const grpc::Status& status) mutable {
        registration->pool->Unlink();
        {
          const std::lock_guard lock(self->mutex_);
          if (status.ok() || IsRefusal(status.error_code())) {
            self->replacing_ = false;
            self->replace_at_.reset();
            self->replacements_.Reset();
          } else {
            self->ReplaceLater(registration->pool->kind());
          }
          if (status.ok()) {
            self->region_ = Region{registration->pool, registration->response.handle()};
          }
        }
        registration->context.reset();  // it holds the channel, which may end only after this
        // So does this, if ShareMemory has put another in its place.
        const std::function<void()> ended = self->call_ended_;
        self.reset();
        ended();
      });
}

void Sharing::ReplaceLater(SharedPool::Kind kind) {
  replacing_ = false;
  const auto pause =
      replacements_.DelayAfter(grpc::StatusCode::UNAVAILABLE, std::nullopt, absl::InfiniteFuture());
  if (pause) replace_at_ = absl::Now() + *pause;
  replace_kind_ = kind;
}

}  // namespace deepencoder::client
