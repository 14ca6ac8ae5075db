// C++ client of a deepencoder server: an image in, the embedding rows out that DeepSeek-OCR's language
// model takes in place of the image's placeholder tokens.
//
//   auto client = deepencoder::client::Client::Create("127.0.0.1:50051");
//   auto image = deepencoder::client::ReadImageFile("page.png");
//   auto rows = (*client)->Encode(*image);        // absl::StatusOr<Embeddings>
//   rows->data                                    // rows->rows * rows->width elements of rows->dtype
//
// Needs nothing of gRPC to be included; link deepencoder::client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace deepencoder::client {

// Values as in the protocol.
enum class Mode : uint8_t { kTiny = 1, kSmall = 2, kBase = 3, kLarge = 4, kGundam = 5 };
enum class DType : uint8_t { kBf16 = 1, kFp16 = 2, kFp32 = 3 };
enum class Alpha : uint8_t { kDrop = 1, kWhite = 2 };
enum class Gray16 : uint8_t { kHighByte = 1, kSaturate = 2 };

std::string_view Name(Mode mode);
std::string_view Name(DType dtype);
std::optional<Mode> ParseMode(std::string_view name);
std::optional<DType> ParseDType(std::string_view name);
constexpr size_t SizeOf(DType dtype) { return dtype == DType::kFp32 ? 4 : 2; }

// A picture to encode: the bytes of a JPEG, PNG, WebP, TIFF, BMP or GIF file, or pixels.
struct Image {
  std::string encoded;
  // Used if `encoded` is empty: height * width * 3 bytes, rows top down, R, G, B.
  std::string rgb;
  uint32_t width = 0, height = 0;
};

// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (no regular file), UNKNOWN (reading failed).
absl::StatusOr<Image> ReadImageFile(const std::string& path);

struct EncodeOptions {
  Mode mode = Mode::kGundam;
  std::optional<int> max_tiles;  // gundam; the server's default if not set
  DType dtype = DType::kBf16;    // of the reply
  std::optional<Alpha> alpha;    // the server's default if not set
  std::optional<Gray16> gray16;
  // Encode: of the whole call, retries included. EncodeMany: the longest time without any reply, whether the
  // server does not answer or does not read.
  absl::Duration timeout = absl::Seconds(60);
  std::string request_id;  // in the server's logs, printable ASCII; made by the server if empty
  // The caller's span, as W3C Trace Context writes it, to put the server's spans beneath it; empty: none.
  std::string traceparent;
};

// How the rows lie on the picture: local_rows (the tiles' mosaic), global_rows, one view separator.
struct Geometry {
  int image_width = 0, image_height = 0;  // pixels, upright
  int tile_columns = 1, tile_rows = 1;    // 1 x 1: no tiles
  int base_side = 0, tile_side = 0;       // pixels; tile_side 0: no tiles
  int local_rows = 0, global_rows = 0;
};

// Seconds in the server.
struct Timings {
  double decode = 0, views = 0, queue = 0, compute = 0, assemble = 0, total = 0;
};

struct Embeddings {
  DType dtype = DType::kBf16;
  int rows = 0, width = 0;
  std::string_view data;              // row-major, little-endian
  std::shared_ptr<const void> owner;  // of `data`, which lives as long as any copy of it
  Geometry geometry;
  Timings timings;

  // Makes `bytes` the data.
  void Own(std::string bytes);
  // `data` as numbers, whatever its type.
  std::vector<float> ToFloats() const;
};

struct ModeInfo {
  Mode mode = Mode::kGundam;
  std::string name;
  int base_side = 0, tile_side = 0;  // pixels; tile_side 0: no tiles
  bool letterbox = false;
  int rows = 0;  // without tiles; with c x r tiles: + 10 r (10 c + 1)
};

struct ModelInfo {
  std::string model, weights_fingerprint, device, version, commit;
  int embedding_width = 0;
  DType compute_dtype = DType::kBf16;
  std::vector<ModeInfo> modes;
  uint64_t max_image_bytes = 0, max_image_pixels = 0;
  uint64_t max_shared_memory_bytes = 0;  // of all clients; 0: the server shares no memory
  int default_max_tiles = 0;
  bool synthetic = false;  // the embeddings mean nothing
};

// Calls that fail because the server is not there (UNAVAILABLE) or full (RESOURCE_EXHAUSTED with a time
// to come back) are tried again, after that time or after a delay that doubles, within their timeout.
struct RetryPolicy {
  int max_attempts = 5;  // 1: no retries
  absl::Duration first_delay = absl::Milliseconds(100);
  absl::Duration max_delay = absl::Seconds(5);
};

// PEM files; empty: not used.
struct TlsOptions {
  std::string root_certificates;               // whom to trust; empty: whom gRPC trusts by default
  std::string client_certificate, client_key;  // shown to the server
  std::string server_name;  // in the server's certificate, if it is not the one in its address
};

struct ClientOptions {
  RetryPolicy retry;
  std::optional<TlsOptions> tls;  // nothing: plain text
  std::string token;              // sent as "authorization: Bearer TOKEN"; empty: none
};

// One image of EncodeMany.
struct ManyResult {
  size_t index;  // of the image, from 0 in the order it was taken
  absl::StatusOr<Embeddings> embeddings;
};

// Thread-safe.
class Client {
 public:
  // `target`: "host:port", "unix:path", or any gRPC name, such as "dns:///servers:50051" or
  // "ipv4:10.0.0.1:50051,10.0.0.2:50051": calls go to all its addresses in turn (a stream to one of them).
  // No connection is made yet.
  // Errors: INVALID_ARGUMENT (an empty target, a retry policy without attempts, a token that would leave
  // this machine unencrypted), those of reading the files of TLS.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const std::string& target,
                                                        const ClientOptions& options = {});
  // Waits for calls under way.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Errors: UNAVAILABLE if there is no connection after `timeout`.
  absl::Status Connect(absl::Duration timeout);

  // From now on images and rows go through `bytes` of memory that is shared with the server, which must
  // be on this host, reached by a unix socket or the loopback interface, run as the same user and with
  // --shared-memory. Rows are not copied out of it: they stay until the last `Embeddings::owner` of them
  // goes, after the client if need be. A call for whose image and reply there is no room goes through the
  // socket, and so does everything if the server stops sharing. Nothing is left in /dev/shm, however this
  // process ends.
  // Called again, it makes a new share in place of the old.
  // Errors: UNIMPLEMENTED (the server shares no memory), PERMISSION_DENIED, RESOURCE_EXHAUSTED (the
  // server's limits, /dev/shm), UNAVAILABLE; images and rows then go as before.
  absl::Status ShareMemory(uint64_t bytes, absl::Duration timeout = absl::Seconds(10));

  // Errors: the server's (see the protocol), UNAVAILABLE, DEADLINE_EXCEEDED, INVALID_ARGUMENT (a request_id
  // or traceparent that is not printable ASCII).
  absl::StatusOr<Embeddings> Encode(Image image, const EncodeOptions& options = {});

  // `done` is called once, from a thread of gRPC: it should not block, and must not destroy the client. Of
  // options that cannot be sent it learns from the caller's own thread, before EncodeAsync returns.
  using Done = std::function<void(absl::StatusOr<Embeddings>)>;
  void EncodeAsync(Image image, const EncodeOptions& options, Done done);
  std::future<absl::StatusOr<Embeddings>> EncodeFuture(Image image,
                                                       const EncodeOptions& options = {});

  // Encodes every image that `next` gives until it gives none, over one stream, at most `in_flight` of
  // them at a time. `next` is called by the caller's thread and may wait, for a file or for what `sink` gets:
  // meanwhile images are sent, answered and, without replies for too long, given up, though EncodeMany returns
  // after it. `sink` is called once an image, as they finish, by other threads, never twice at once; how long
  // it takes is not held against the server. A broken stream is opened again and what was not answered is
  // sent again; what is over the server's limit of bytes is answered without being sent. Returns when all
  // are answered.
  // Errors: INVALID_ARGUMENT (in_flight < 1, options that Encode would refuse); the stream's, if it could not
  // be mended: the images in flight then got that status, and no more were taken.
  absl::Status EncodeMany(const std::function<std::optional<Image>()>& next,
                          const EncodeOptions& options, int in_flight,
                          const std::function<void(ManyResult)>& sink);

  absl::StatusOr<ModelInfo> Info(absl::Duration timeout = absl::Seconds(10));

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepencoder::client
