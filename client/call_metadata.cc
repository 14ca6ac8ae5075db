#include "client/call_metadata.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace deepencoder::client {
namespace {

constexpr char kRequestIdKey[] = "x-request-id";
constexpr char kTraceparentKey[] = "traceparent";

absl::Status CheckText(const char* name, const std::string& text) {
  const auto bad =
      std::find_if(text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7E; });
  if (bad == text.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": byte ", bad - text.begin(), " is 0x",
                   absl::Hex(static_cast<unsigned char>(*bad), absl::kZeroPad2),
                   "; it goes into a header, which has printable ASCII alone"));
}

}  // namespace

absl::Status CheckMetadata(const EncodeOptions& options) {
  absl::Status status = CheckText("request_id", options.request_id);
  if (status.ok()) status = CheckText("traceparent", options.traceparent);
  return status;
}

void AddMetadata(const EncodeOptions& options, grpc::ClientContext& context) {
  if (!options.request_id.empty()) context.AddMetadata(kRequestIdKey, options.request_id);
  if (!options.traceparent.empty()) context.AddMetadata(kTraceparentKey, options.traceparent);
}

}  // namespace deepencoder::client
