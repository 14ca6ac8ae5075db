// SHA-256 (FIPS 180-4), for comparing pictures with recorded ones in tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace deepencoder {

std::string Sha256Hex(std::span<const uint8_t> data);

}  // namespace deepencoder
