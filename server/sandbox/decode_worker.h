// The worker's side: a process that decodes one image after another for the server that started it.
#pragma once

#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "encoder/image/decode.h"
#include "encoder/image/image.h"

namespace deepencoder {

using DecodeFunction = std::function<absl::StatusOr<RgbImage>(std::span<const std::byte> file,
                                                              const DecodeOptions& options)>;

// Whether a program was started as a worker: main() then returns RunDecodeWorker and does nothing else.
bool IsDecodeWorker(int argc, const char* const* argv);

// Confines the process, then decodes until the server is gone. Returns the exit status.
int RunDecodeWorker(int argc, const char* const* argv, const DecodeFunction& decode = DecodeImage);

}  // namespace deepencoder
