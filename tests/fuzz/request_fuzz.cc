// A message of EncodeImage as it comes from the wire, up to the engine's door.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <memory>
#include <variant>
#include <vector>

#include "encoder/image/decode.h"
#include "server/rpc/call_regions.h"
#include "server/rpc/message_buffer.h"
#include "server/rpc/translate.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/message_parts.h"
#include "tests/fuzz/rules.h"
#include "tests/fuzz/shared_regions.h"

namespace deepencoder::fuzz {
namespace {

void RequireJob(const EncodeJob& job, const RequestRules& rules) {
  Require(std::ranges::find(rules.modes, job.mode) != rules.modes.end(), "the mode is served");
  Require(job.max_tiles >= kMinMaxTiles && job.max_tiles <= kMaxMaxTiles, "max_tiles is in range");
  if (const auto* file = std::get_if<EncodedFile>(&job.image)) {
    const auto header = ReadHeader(file->file.bytes, DecodeOptions{});
    if (!header.ok()) RequireRefusal(header.status());
  }
}

}  // namespace

void TryInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer silencer;  // a line for each string that is no UTF-8
  const uint64_t choice = ChoiceOf(data, size);
  const grpc::ByteBuffer bytes = BufferOf(data, size, choice);
  auto parsed = ParseRequest(bytes);
  if (!parsed.ok()) return RequireRefusal(parsed.status());
  RequireFewParts(bytes, *parsed, choice);
  const auto request = std::make_shared<const v1::EncodeImageRequest>(*std::move(parsed));
  const RequestRules rules = SomeRules();
  static const SharedRegions regions;
  const auto find = [](const std::string& name) { return regions.Find(name); };
  const auto window = ReplyWindowOf(*request, find);
  if (!window.ok()) {
    SharedRegions::RequireRefusal(window.status());
  } else if (*window) {
    SharedRegions::RequireInside(**window);
  }
  const absl::StatusOr<EncodeJob> job = ToJob(request, rules, find);
  if (job.ok()) {
    RequireJob(*job, rules);
    return;
  }
  SharedRegions::RequireRefusal(job.status());
  const v1::EncodeImageResponse answer = ToErrorResponse(request->id(), job.status());
  Require(answer.id().size() <= kMaxImageId, "an answer's id is bounded");
  Require(SerializeResponse(answer).Valid(), "a refusal can be sent");
}

}  // namespace deepencoder::fuzz
