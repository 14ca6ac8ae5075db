// Bearer tokens and their names.
//
// A file has a line for each: NAME:SECRET, or NAME:sha256:HEX where the server shall not know the
// secret. Empty lines and lines that begin with # are skipped. A name may stand in several lines: during
// a rotation the old and the new token are one client.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace deepencoder {

class TokenSet {
 public:
  // Errors: INVALID_ARGUMENT naming the line and never what is in it.
  static absl::StatusOr<TokenSet> Parse(std::string_view text);
  // Errors: also those of ReadSecretFile.
  static absl::StatusOr<TokenSet> Load(const std::string& path);

  // The name of a token. The time it takes depends on the number of tokens, not on how much of
  // `secret` is right.
  std::optional<std::string> NameOf(std::string_view secret) const;

  size_t size() const { return tokens_.size(); }

 private:
  using Digest = std::array<uint8_t, 32>;  // SHA-256
  struct Token {
    std::string name;
    Digest digest;
  };
  static absl::StatusOr<Token> ParseLine(std::string_view line);

  std::vector<Token> tokens_;
};

}  // namespace deepencoder
