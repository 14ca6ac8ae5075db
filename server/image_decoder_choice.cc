#include "server/image_decoder_choice.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/decode_pool.h"

namespace deepencoder {

absl::StatusOr<std::shared_ptr<ImageDecoder>> ChooseImageDecoder(const ServerOptions& options,
                                                                 SandboxObserver* observer,
                                                                 const Logger* logger) {
  if (options.decode_sandbox == DecodeSandbox::kOff) {
    logger->Info("images are decoded in the server's own process (--decode-sandbox=off)");
    return std::make_shared<InProcessDecoder>();
  }
  const int workers = DecodeThreadCount(static_cast<int>(options.decode_threads));
  SandboxOptions sandbox = {
      .worker = {.max_file_bytes = static_cast<size_t>(options.max_image_bytes),
                 .max_pixels = options.max_image_pixels,
                 .cpu_limit = options.decode_timeout},
      .workers = workers,
      .log = [logger](const std::string& line) { logger->Warning(line); }};
  auto decoder = SandboxedDecoder::Create(std::move(sandbox), observer);
  if (decoder.ok()) {
    logger->Info("images are decoded in confined processes", {{"workers", workers}});
    return std::shared_ptr<ImageDecoder>(*std::move(decoder));
  }
  const std::string reason(decoder.status().message());
  if (options.decode_sandbox == DecodeSandbox::kRequired) {
    return absl::FailedPreconditionError(absl::StrCat("--decode-sandbox=required: ", reason));
  }
  logger->Warning(
      "no confined processes here: images are decoded in the server's own "
      "(--decode-sandbox=required refuses to start then)",
      {{"reason", reason}});
  return std::make_shared<InProcessDecoder>();
}

}  // namespace deepencoder
