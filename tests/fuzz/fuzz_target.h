// What the fuzz targets share. Each target is one file that defines TryInput; libFuzzer calls it with mutated
// inputs (libfuzzer_entry.cc), replay_main.cc with those of the corpora.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace deepencoder::fuzz {

// Gives an input to the code under test. Whatever the input, it returns; what it does otherwise is a finding.
void TryInput(const uint8_t* data, size_t size);

// Ends the program, which is a finding, if a promise of the code under test does not hold.
inline void Require(bool holds, const std::string& promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
  std::abort();
}

// What a client's mistake may be answered with: these codes, and a text that says why.
inline void RequireRefusal(const absl::Status& status) {
  Require(
      status.code() == absl::StatusCode::kInvalidArgument ||
          status.code() == absl::StatusCode::kResourceExhausted ||
          status.code() == absl::StatusCode::kUnimplemented,
      "a refusal is INVALID_ARGUMENT, RESOURCE_EXHAUSTED or UNIMPLEMENTED: " + status.ToString());
  Require(!status.message().empty(), "a refusal says why");
}

inline std::span<const std::byte> AsBytes(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

inline std::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Chooses options. A function of the whole input, so that a corpus of plain files reaches every option
// without bytes that say so.
inline uint64_t ChoiceOf(const uint8_t* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001b3;
  return hash ^ hash >> 32;
}

}  // namespace deepencoder::fuzz
