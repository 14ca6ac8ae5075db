// Where images are decoded, as the options say and the machine allows.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/engine/image_decoder.h"
#include "server/log.h"
#include "server/options.h"
#include "server/sandbox/sandboxed_decoder.h"

namespace deepencoder {

// Workers, or this process where --decode-sandbox=process cannot have them, which is logged. To be called
// from a thread that lives as long as the decoder. Errors: with --decode-sandbox=required alone.
absl::StatusOr<std::shared_ptr<ImageDecoder>> ChooseImageDecoder(const ServerOptions& options,
                                                                 SandboxObserver* observer,
                                                                 const Logger* logger);

}  // namespace deepencoder
