#include "server/kserve/infer_parameters.h"

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "encoder/base/dtype.h"
#include "encoder/model/geometry.h"
#include "server/rpc/translate.h"

namespace deepencoder::kserve {
namespace {

using Value = inference::InferParameter;

absl::Status Wrong(std::string_view name, const std::string& got, const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", std::string(name), " is ", got, ": expected ", expected));
}

absl::StatusOr<std::string> Text(std::string_view name, const Value& value,
                                 const std::string& expected) {
  if (value.has_string_param()) return value.string_param();
  return Wrong(name, "no string_param", expected);
}

absl::StatusOr<int64_t> Integer(std::string_view name, const Value& value,
                                const std::string& expected) {
  if (value.has_int64_param()) return value.int64_param();
  if (value.has_uint64_param() && std::in_range<int64_t>(value.uint64_param())) {
    return static_cast<int64_t>(value.uint64_param());
  }
  return Wrong(name, "no int64_param", expected);
}

// The choice that is called as the value says.
template <typename Choice>
absl::StatusOr<Choice> Choose(std::string_view name, const Value& value,
                              std::initializer_list<std::pair<std::string_view, Choice>> choices) {
  std::string expected = "one of ";
  for (const auto& [text, choice] : choices) {
    absl::StrAppend(&expected, expected.back() == ' ' ? "" : ", ", std::string(text));
  }
  const absl::StatusOr<std::string> given = Text(name, value, expected);
  if (!given.ok()) return given.status();
  for (const auto& [text, choice] : choices) {
    if (*given == text) return choice;
  }
  return Wrong(name, absl::StrCat("'", *given, "'"), expected);
}

absl::Status SetMode(std::string_view name, const Value& value, InferOptions& options) {
  std::string expected = "one of ";
  for (const ModeSpec& spec : Modes()) {
    absl::StrAppend(&expected, expected.back() == ' ' ? "" : ", ", std::string(spec.name));
  }
  const absl::StatusOr<std::string> text = Text(name, value, expected);
  if (!text.ok()) return text.status();
  const std::optional<Mode> mode = ParseMode(*text);
  if (!mode) return Wrong(name, absl::StrCat("'", *text, "'"), expected);
  options.image.set_mode(ToProto(*mode));
  return absl::OkStatus();
}

absl::Status SetMaxTiles(std::string_view name, const Value& value, InferOptions& options) {
  const std::string expected =
      absl::StrCat("an int64_param of ", kMinMaxTiles, " to ", kMaxMaxTiles);
  const absl::StatusOr<int64_t> tiles = Integer(name, value, expected);
  if (!tiles.ok()) return tiles.status();
  if (*tiles < kMinMaxTiles || *tiles > kMaxMaxTiles) {
    return Wrong(name, absl::StrCat(*tiles), expected);
  }
  options.image.set_max_tiles(static_cast<uint32_t>(*tiles));
  return absl::OkStatus();
}

// As a datatype of the protocol (BF16) or as elsewhere in this server (bf16).
absl::Status SetDType(std::string_view name, const Value& value, InferOptions& options) {
  const std::string expected = "one of BF16, FP16, FP32";
  const absl::StatusOr<std::string> text = Text(name, value, expected);
  if (!text.ok()) return text.status();
  const std::optional<DType> dtype = ParseDType(absl::AsciiStrToLower(*text));
  if (!dtype) return Wrong(name, absl::StrCat("'", *text, "'"), expected);
  options.image.set_dtype(ToProto(*dtype));
  return absl::OkStatus();
}

absl::Status SetAlpha(std::string_view name, const Value& value, InferOptions& options) {
  const auto alpha = Choose<v1::AlphaPolicy>(
      name, value, {{"drop", v1::ALPHA_POLICY_DROP}, {"white", v1::ALPHA_POLICY_WHITE}});
  if (!alpha.ok()) return alpha.status();
  options.image.set_alpha(*alpha);
  return absl::OkStatus();
}

absl::Status SetGray16(std::string_view name, const Value& value, InferOptions& options) {
  const auto gray16 = Choose<v1::Gray16Policy>(
      name, value,
      {{"high_byte", v1::GRAY16_POLICY_HIGH_BYTE}, {"saturate", v1::GRAY16_POLICY_SATURATE}});
  if (!gray16.ok()) return gray16.status();
  options.image.set_gray16(*gray16);
  return absl::OkStatus();
}

// Triton's: microseconds; 0 is none.
absl::Status SetTimeout(std::string_view name, const Value& value, InferOptions& options) {
  const std::string expected = "an int64_param of microseconds, 0 or more";
  const absl::StatusOr<int64_t> microseconds = Integer(name, value, expected);
  if (!microseconds.ok()) return microseconds.status();
  if (*microseconds < 0) return Wrong(name, absl::StrCat(*microseconds), expected);
  if (*microseconds > 0) options.timeout = absl::Microseconds(*microseconds);
  return absl::OkStatus();
}

struct Known {
  std::string_view name;
  absl::Status (*set)(std::string_view name, const Value& value, InferOptions& options);
};
constexpr std::array<Known, 6> kKnown = {{{"mode", SetMode},
                                          {"max_tiles", SetMaxTiles},
                                          {"dtype", SetDType},
                                          {"alpha", SetAlpha},
                                          {"gray16", SetGray16},
                                          {"timeout", SetTimeout}}};

// Names that Triton keeps for directives to itself. Clients send them unasked (perf_analyzer:
// triton_enable_empty_final_response), and none means anything where a request has one response.
constexpr std::string_view kTritonPrefix = "triton_";

// One parameter. A name that nobody knows is refused: a misspelt option would give other embeddings
// than those that were meant.
absl::Status Set(const std::string& name, const Value& value, InferOptions& options) {
  if (name.starts_with(kTritonPrefix)) return absl::OkStatus();
  std::string names;
  for (const Known& known : kKnown) {
    if (name == known.name) return known.set(known.name, value, options);
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(known.name));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown parameter '", name, "'; known: ", names));
}

}  // namespace

absl::Status ReadParameters(const Parameters& parameters, InferOptions& options) {
  for (const auto& [name, value] : parameters) {
    if (absl::Status status = Set(name, value, options); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RegionWindow>> ReadTensorParameters(const std::string& tensor,
                                                                 const Parameters& parameters,
                                                                 const FindRegion& find) {
  constexpr std::string_view kExpected = "an int64_param of bytes, 0 or more";
  std::optional<std::string> region;
  std::optional<uint64_t> size;
  uint64_t offset = 0;
  for (const auto& [name, value] : parameters) {
    if (name == kRegionParameter) {
      absl::StatusOr<std::string> text = Text(name, value, "a string_param");
      if (!text.ok()) return text.status();
      region = *std::move(text);
    } else if (name == kRegionSizeParameter || name == kRegionOffsetParameter) {
      const absl::StatusOr<int64_t> bytes = Integer(name, value, std::string(kExpected));
      if (!bytes.ok()) return bytes.status();
      if (*bytes < 0) return Wrong(name, absl::StrCat(*bytes), std::string(kExpected));
      (name == kRegionSizeParameter ? size.emplace() : offset) = static_cast<uint64_t>(*bytes);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", tensor, ": unknown parameter '", name, "'; known: ", kRegionParameter, ", ",
          kRegionSizeParameter, ", ", kRegionOffsetParameter));
    }
  }
  if (parameters.empty()) return std::nullopt;
  if (!region || !size) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor, ": shared memory needs both ",
                                                   kRegionParameter, " and ",
                                                   kRegionSizeParameter));
  }
  auto found = find(*region);
  if (!found.ok()) return found.status();
  if (absl::Status status = (*found)->CheckRange(offset, *size); !status.ok()) return status;
  return RegionWindow{*std::move(found), offset, *size};
}

}  // namespace deepencoder::kserve
