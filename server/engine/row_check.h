// Whether rows that a backend has written are numbers.
#pragma once

#include "encoder/backend/backend.h"

namespace deepencoder {

// Looks at the first and the last element of each of the item's rows. Enough: the encoder's last layer is
// linear, so a value before it that is not finite makes the whole row not finite.
bool RowsAreFinite(const EncodeItem& item, int lines);

// Has `slot` encode a plain image that `backend` makes a view of, of `side` pixels. INTERNAL if what comes
// is not finite either: the device is at fault then, and not an image.
absl::Status CheckWithPlainImage(Backend* backend, EncoderSlot* slot, int side);

}  // namespace deepencoder
