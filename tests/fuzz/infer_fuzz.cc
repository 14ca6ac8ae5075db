// A ModelInfer message of KServe's protocol, up to the engine's door.
#include <google/protobuf/stubs/logging.h>

#include <memory>

#include "server/kserve/infer_request.h"
#include "server/rpc/message_buffer.h"
#include "server/rpc/translate.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/message_parts.h"
#include "tests/fuzz/rules.h"
#include "tests/fuzz/shared_regions.h"

namespace deepencoder::fuzz {

void TryInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer silencer;  // a line for each string that is no UTF-8
  const auto message = std::make_shared<inference::ModelInferRequest>();
  const uint64_t choice = ChoiceOf(data, size);
  const grpc::ByteBuffer bytes = BufferOf(data, size, choice);
  if (absl::Status status = ParseMessage(bytes, message.get()); !status.ok()) {
    return RequireRefusal(status);
  }
  RequireFewParts(bytes, *message, choice);
  static const SharedRegions regions;
  const auto find = [](const std::string& name) { return regions.Find(name); };
  const absl::StatusOr<kserve::InferRequest> request =
      kserve::ReadInferRequest(message, find, SomeRules().max_image_bytes);
  if (!request.ok()) return SharedRegions::RequireRefusal(request.status());
  Require(!request->files.empty() && !request->outputs.empty(), "there is work and an answer");
  for (const SharedBytes& file : request->files) {
    Require(file.bytes.size() <= size + kRegionBytes, "an image is a part of what was sent");
    const absl::StatusOr<EncodeJob> job = ToJob(request->options.image, file, SomeRules());
    if (!job.ok()) RequireRefusal(job.status());
  }
  for (const auto& window : request->windows) {
    if (window) SharedRegions::RequireInside(*window);
  }
}

}  // namespace deepencoder::fuzz
