// What the servers under test allow.
#pragma once

#include "encoder/model/geometry.h"
#include "server/rpc/translate.h"

namespace deepencoder::fuzz {

// All modes but one, so that a mode that is known and not served is met too.
inline RequestRules SomeRules() {
  RequestRules rules;
  for (const ModeSpec& spec : Modes()) {
    if (spec.mode != Mode::kSmall) rules.modes.push_back(spec.mode);
  }
  rules.max_image_bytes = 4096;
  return rules;
}

}  // namespace deepencoder::fuzz
