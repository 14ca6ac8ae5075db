#include "server/rpc/translate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "encoder/model/config.h"
#include "server/engine/retry_hint.h"
#include "server/rpc/message_buffer.h"
#include "server/rpc/status.h"

namespace deepencoder {
namespace {

std::string ServedModes(const RequestRules& rules) {
  std::string names;
  for (Mode mode : rules.modes) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(SpecOf(mode).name));
  }
  return names;
}

absl::StatusOr<Mode> ToMode(v1::Mode mode, const RequestRules& rules) {
  std::optional<Mode> known;
  switch (mode) {
    case v1::MODE_TINY:
      known = Mode::kTiny;
      break;
    case v1::MODE_SMALL:
      known = Mode::kSmall;
      break;
    case v1::MODE_BASE:
      known = Mode::kBase;
      break;
    case v1::MODE_LARGE:
      known = Mode::kLarge;
      break;
    case v1::MODE_UNSPECIFIED:
    case v1::MODE_GUNDAM:
      known = Mode::kGundam;
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unknown mode ", static_cast<int>(mode), "; served: ", ServedModes(rules)));
  }
  if (std::find(rules.modes.begin(), rules.modes.end(), *known) == rules.modes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("mode ", std::string(SpecOf(*known).name),
                     " is not served here; served: ", ServedModes(rules)));
  }
  return *known;
}

absl::StatusOr<DType> ToDType(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_UNSPECIFIED:
    case v1::DTYPE_BF16:
      return DType::kBf16;
    case v1::DTYPE_FP16:
      return DType::kFp16;
    case v1::DTYPE_FP32:
      return DType::kFp32;
    default:
      return absl::InvalidArgumentError(absl::StrCat("unknown dtype ", static_cast<int>(dtype),
                                                     "; known: bf16 (1), fp16 (2), fp32 (3)"));
  }
}

absl::StatusOr<AlphaPolicy> ToAlpha(v1::AlphaPolicy alpha, AlphaPolicy otherwise) {
  switch (alpha) {
    case v1::ALPHA_POLICY_UNSPECIFIED:
      return otherwise;
    case v1::ALPHA_POLICY_DROP:
      return AlphaPolicy::kDrop;
    case v1::ALPHA_POLICY_WHITE:
      return AlphaPolicy::kWhite;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown alpha policy ", static_cast<int>(alpha), "; known: drop (1), white (2)"));
  }
}

absl::StatusOr<Gray16Policy> ToGray16(v1::Gray16Policy gray16, Gray16Policy otherwise) {
  switch (gray16) {
    case v1::GRAY16_POLICY_UNSPECIFIED:
      return otherwise;
    case v1::GRAY16_POLICY_HIGH_BYTE:
      return Gray16Policy::kHighByte;
    case v1::GRAY16_POLICY_SATURATE:
      return Gray16Policy::kSaturate;
    default:
      return absl::InvalidArgumentError(absl::StrCat("unknown gray16 policy ",
                                                     static_cast<int>(gray16),
                                                     "; known: high byte (1), saturate (2)"));
  }
}

absl::Status CheckSize(size_t bytes, const RequestRules& rules) {
  if (bytes <= static_cast<size_t>(rules.max_image_bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the image has ", bytes, " bytes; the limit is ",
                                                   rules.max_image_bytes,
                                                   " (the server's --max-image-bytes)"));
}

SharedBytes Share(const std::shared_ptr<const v1::EncodeImageRequest>& request,
                  const std::string& bytes) {
  return {request, std::as_bytes(std::span(bytes.data(), bytes.size()))};
}

// The bytes of a raw image, from wherever they lie.
absl::StatusOr<SharedBytes> RgbOf(const std::shared_ptr<const v1::EncodeImageRequest>& request,
                                  const RequestRules& rules, const FindRegion& find_region) {
  const v1::RawImage& raw = request->raw();
  if (!raw.has_rgb_range()) {
    if (absl::Status status = CheckSize(raw.rgb().size(), rules); !status.ok()) return status;
    return Share(request, raw.rgb());
  }
  if (!raw.rgb().empty()) {
    return absl::InvalidArgumentError("the raw image has both rgb and rgb_range: expected one");
  }
  return ReadRange(raw.rgb_range(), rules.max_image_bytes, find_region);
}

absl::Status SetRaw(const std::shared_ptr<const v1::EncodeImageRequest>& request,
                    const RequestRules& rules, const FindRegion& find_region, EncodeJob& job) {
  const v1::RawImage& raw = request->raw();
  if (raw.width() == 0 || raw.height() == 0 || raw.width() > INT32_MAX ||
      raw.height() > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        "raw image of ", raw.width(), " x ", raw.height(), " pixels: each side must be 1 or more"));
  }
  // Below 2^62, so that three times as much fits too.
  const uint64_t pixels = uint64_t{raw.width()} * raw.height();
  const uint64_t bytes = raw.has_rgb_range() ? raw.rgb_range().size() : raw.rgb().size();
  if (pixels * 3 != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("raw image of ", raw.width(), " x ", raw.height(),
                     " pixels: rgb must have width * height * 3 bytes, it has ", bytes));
  }
  absl::StatusOr<SharedBytes> rgb = RgbOf(request, rules, find_region);
  if (!rgb.ok()) return rgb.status();
  job.image =
      RawPixels{static_cast<int>(raw.width()), static_cast<int>(raw.height()), *std::move(rgb)};
  return absl::OkStatus();
}

absl::Status SetFile(SharedBytes file, const RequestRules& rules, EncodeJob& job) {
  const size_t bytes = file.bytes.size();
  if (bytes == 0) return absl::InvalidArgumentError("the image file is empty (0 bytes)");
  job.image = EncodedFile{std::move(file)};
  return CheckSize(bytes, rules);
}

absl::Status SetImage(const std::shared_ptr<const v1::EncodeImageRequest>& request,
                      const RequestRules& rules, const FindRegion& find_region, EncodeJob& job) {
  switch (request->image_case()) {
    case v1::EncodeImageRequest::kEncoded:
      return SetFile(Share(request, request->encoded()), rules, job);
    case v1::EncodeImageRequest::kRaw:
      return SetRaw(request, rules, find_region, job);
    case v1::EncodeImageRequest::kEncodedRange: {
      absl::StatusOr<SharedBytes> file =
          ReadRange(request->encoded_range(), rules.max_image_bytes, find_region);
      if (!file.ok()) return file.status();
      return SetFile(*std::move(file), rules, job);
    }
    case v1::EncodeImageRequest::IMAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the request has no image: set 'encoded' (a JPEG, PNG, WebP, TIFF, BMP or GIF file), 'raw' "
      "or "
      "'encoded_range'");
}

absl::Status SetMaxTiles(const v1::EncodeImageRequest& request, const RequestRules& rules,
                         EncodeJob& job) {
  job.max_tiles = rules.max_tiles;
  if (!request.has_max_tiles()) return absl::OkStatus();
  if (request.max_tiles() < kMinMaxTiles || request.max_tiles() > kMaxMaxTiles) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_tiles is ", request.max_tiles(), ": it must be ", kMinMaxTiles, " to ", kMaxMaxTiles));
  }
  job.max_tiles = static_cast<int>(request.max_tiles());
  return absl::OkStatus();
}

void SetGeometry(const EncodeResult& result, v1::Geometry& geometry) {
  const ModeSpec& spec = SpecOf(result.mode);
  const bool tiled = result.tiles.count() > 0;
  const SequenceLayout whole = LayoutOf(result.mode, TileGrid{});
  const int global_rows = whole.rows - 1;  // without the separator
  geometry.set_image_width(result.image_width);
  geometry.set_image_height(result.image_height);
  geometry.set_tile_columns(result.tiles.columns);
  geometry.set_tile_rows(result.tiles.rows);
  geometry.set_base_side(spec.base_side);
  geometry.set_tile_side(tiled ? spec.tile_side : 0);
  geometry.set_local_rows(result.rows - 1 - global_rows);
  geometry.set_global_rows(global_rows);
}

void SetTimings(const StageSeconds& seconds, v1::Timings& timings) {
  timings.set_decode(seconds.decode);
  timings.set_views(seconds.views);
  timings.set_queue(seconds.queue);
  timings.set_compute(seconds.compute);
  timings.set_assemble(seconds.assemble);
  timings.set_total(seconds.total);
}

// At most kMaxImageId bytes, not cut within a UTF-8 character.
std::string CutId(std::string id) {
  if (id.size() <= kMaxImageId) return id;
  size_t end = kMaxImageId;
  while (end > 0 && (static_cast<unsigned char>(id[end]) & 0xC0) == 0x80) --end;
  id.resize(end);
  return id;
}

// All but the image.
absl::StatusOr<EncodeJob> ToJobWithoutImage(const v1::EncodeImageRequest& request,
                                            const RequestRules& rules) {
  if (request.id().size() > kMaxImageId) {
    return absl::InvalidArgumentError(
        absl::StrCat("the id has ", request.id().size(), " bytes; the limit is ", kMaxImageId));
  }
  EncodeJob job;
  const auto mode = ToMode(request.mode(), rules);
  if (!mode.ok()) return mode.status();
  job.mode = *mode;
  const auto dtype = ToDType(request.dtype());
  if (!dtype.ok()) return dtype.status();
  job.dtype = *dtype;
  const auto alpha = ToAlpha(request.alpha(), rules.alpha);
  if (!alpha.ok()) return alpha.status();
  job.alpha = *alpha;
  const auto gray16 = ToGray16(request.gray16(), rules.gray16);
  if (!gray16.ok()) return gray16.status();
  job.gray16 = *gray16;
  if (absl::Status status = SetMaxTiles(request, rules, job); !status.ok()) return status;
  return job;
}

}  // namespace

absl::StatusOr<EncodeJob> ToJob(const std::shared_ptr<const v1::EncodeImageRequest>& request,
                                const RequestRules& rules, const FindRegion& find_region) {
  absl::StatusOr<EncodeJob> job = ToJobWithoutImage(*request, rules);
  if (!job.ok()) return job;
  if (absl::Status status = SetImage(request, rules, find_region, *job); !status.ok()) {
    return status;
  }
  return job;
}

absl::StatusOr<EncodeJob> ToJob(const v1::EncodeImageRequest& options, SharedBytes file,
                                const RequestRules& rules) {
  absl::StatusOr<EncodeJob> job = ToJobWithoutImage(options, rules);
  if (!job.ok()) return job;
  if (absl::Status status = SetFile(std::move(file), rules, *job); !status.ok()) return status;
  return job;
}

v1::EncodeImageResponse ToResponse(std::string id, const EncodeResult& result) {
  v1::EncodeImageResponse response;
  response.set_id(std::move(id));
  response.set_dtype(ToProto(result.dtype));
  response.add_shape(result.rows);
  response.add_shape(kEmbeddingWidth);
  SetGeometry(result, *response.mutable_geometry());
  SetTimings(result.seconds, *response.mutable_timings());
  return response;
}

v1::EncodeImageResponse ToErrorResponse(std::string id, const absl::Status& status) {
  v1::EncodeImageResponse response;
  response.set_id(CutId(std::move(id)));
  response.mutable_error()->set_code(static_cast<int>(status.code()));
  response.mutable_error()->set_message(PrintableMessage(status));
  if (const auto retry_after = RetryAfter(status)) {
    response.mutable_error()->set_retry_after(absl::ToDoubleSeconds(*retry_after));
  }
  return response;
}

v1::ModelInfo DescribeModes(const RequestRules& rules, int64_t max_image_pixels) {
  v1::ModelInfo info;
  info.set_embedding_width(kEmbeddingWidth);
  info.set_default_max_tiles(rules.max_tiles);
  for (Mode mode : rules.modes) {
    const ModeSpec& spec = SpecOf(mode);
    v1::ModeInfo& entry = *info.add_modes();
    entry.set_mode(ToProto(mode));
    entry.set_name(std::string(spec.name));
    entry.set_base_side(spec.base_side);
    entry.set_tile_side(spec.tile_side);
    entry.set_letterbox(spec.letterbox);
    entry.set_rows(LayoutOf(mode, TileGrid{}).rows);
  }
  v1::Limits& limits = *info.mutable_limits();
  limits.set_max_image_bytes(rules.max_image_bytes);
  limits.set_max_image_pixels(max_image_pixels);
  limits.set_min_max_tiles(kMinMaxTiles);
  limits.set_max_max_tiles(kMaxMaxTiles);
  limits.set_max_message_bytes(MaxMessageBytes(rules.max_image_bytes));
  limits.set_max_shared_memory_bytes(rules.shared_memory_bytes);
  return info;
}

v1::DType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return v1::DTYPE_BF16;
    case DType::kFp16:
      return v1::DTYPE_FP16;
    case DType::kFp32:
      return v1::DTYPE_FP32;
  }
  return v1::DTYPE_UNSPECIFIED;
}

v1::Mode ToProto(Mode mode) {
  switch (mode) {
    case Mode::kTiny:
      return v1::MODE_TINY;
    case Mode::kSmall:
      return v1::MODE_SMALL;
    case Mode::kBase:
      return v1::MODE_BASE;
    case Mode::kLarge:
      return v1::MODE_LARGE;
    case Mode::kGundam:
      return v1::MODE_GUNDAM;
  }
  return v1::MODE_UNSPECIFIED;
}

}  // namespace deepencoder
