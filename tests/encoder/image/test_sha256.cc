#include "tests/encoder/image/test_sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace deepencoder {
namespace {

bool IsPrime(int n) {
  for (int d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return true;
}

// The standard's constants: first 32 bits of the fractions of roots of the first primes.
struct Constants {
  std::array<uint32_t, 64> round;
  std::array<uint32_t, 8> start;
  Constants() {
    const auto fraction = [](long double root) {
      return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
    };
    size_t count = 0;
    for (int n = 2; count < round.size(); ++n) {
      if (!IsPrime(n)) continue;
      round[count] = fraction(std::cbrt(static_cast<long double>(n)));
      if (count < start.size()) start[count] = fraction(std::sqrt(static_cast<long double>(n)));
      ++count;
    }
  }
};

void Compress(std::array<uint32_t, 8>& state, const uint8_t* block, const Constants& constants) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
           uint32_t{block[4 * i + 2]} << 8 | uint32_t{block[4 * i + 3]};
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                        ((e & f) ^ (~e & g)) + constants.round[i] + w[i];
    const uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += add[i];
}

}  // namespace

std::string Sha256Hex(std::span<const uint8_t> data) {
  static const Constants constants;
  std::array<uint32_t, 8> state = constants.start;
  size_t at = 0;
  for (; data.size() - at >= 64; at += 64) Compress(state, data.data() + at, constants);
  std::vector<uint8_t> tail(data.begin() + static_cast<std::ptrdiff_t>(at), data.end());
  tail.push_back(0x80);
  while (tail.size() % 64 != 56) tail.push_back(0);
  const uint64_t bits = uint64_t{data.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) tail.push_back(static_cast<uint8_t>(bits >> shift));
  for (size_t i = 0; i < tail.size(); i += 64) Compress(state, tail.data() + i, constants);
  std::string hex;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

}  // namespace deepencoder
