#include "server/security/token_set.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/security/watched_files.h"

namespace deepencoder {
namespace {

constexpr size_t kMaxName = 64;
constexpr size_t kMinSecret = 16, kMaxSecret = 512;  // characters
constexpr size_t kMaxTokens = 1024;                  // each call is compared with every one
constexpr std::string_view kHashed = "sha256:";
constexpr std::string_view kBlanks = " \t\r";

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

bool IsSecret(std::string_view secret) {
  return secret.size() >= kMinSecret && secret.size() <= kMaxSecret &&
         std::all_of(secret.begin(), secret.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

template <typename Digest>
bool FromHex(std::string_view hex, Digest& digest) {
  if (hex.size() != 2 * digest.size()) return false;
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = HexDigit(hex[2 * i]), low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    digest[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

template <typename Digest>
bool Sha256(std::string_view text, Digest& digest) {
  return EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1;
}

}  // namespace

absl::StatusOr<TokenSet::Token> TokenSet::ParseLine(std::string_view line) {
  const size_t colon = line.find(':');
  Token token;
  token.name = std::string(line.substr(0, colon));
  if (colon == std::string_view::npos || !IsName(token.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected NAME:SECRET or NAME:sha256:HEX, the name of 1 to ", kMaxName,
                     " letters, digits, '.', '-' or '_'"));
  }
  const std::string_view secret = line.substr(colon + 1);
  if (secret.starts_with(kHashed)) {
    if (FromHex(secret.substr(kHashed.size()), token.digest)) return token;
    return absl::InvalidArgumentError("behind sha256: expected 64 digits 0-9, a-f");
  }
  if (!IsSecret(secret)) {
    return absl::InvalidArgumentError(absl::StrCat("expected a secret of ", kMinSecret, " to ",
                                                   kMaxSecret,
                                                   " printable characters without blanks"));
  }
  if (!Sha256(secret, token.digest)) return absl::InternalError("no SHA-256");
  return token;
}

absl::StatusOr<TokenSet> TokenSet::Parse(std::string_view text) {
  TokenSet set;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && kBlanks.find(line.back()) != std::string_view::npos) {
      line.remove_suffix(1);
    }
    if (line.empty() || line.front() == '#') continue;
    absl::StatusOr<Token> token = ParseLine(line);
    if (token.ok() && std::any_of(set.tokens_.begin(), set.tokens_.end(), [&](const Token& other) {
          return other.digest == token->digest;
        })) {
      token = absl::InvalidArgumentError("a token that another line has too");
    }
    if (!token.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", std::string(token.status().message())));
    }
    set.tokens_.push_back(*std::move(token));
    if (set.tokens_.size() > kMaxTokens) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxTokens, " tokens"));
    }
  }
  if (set.tokens_.empty()) return absl::InvalidArgumentError("there is no token in it");
  return set;
}

absl::StatusOr<TokenSet> TokenSet::Load(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecretFile(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<TokenSet> set = Parse(*text);
  if (set.ok()) return set;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(set.status().message())));
}

std::optional<std::string> TokenSet::NameOf(std::string_view secret) const {
  Digest digest;
  if (!Sha256(secret, digest)) return std::nullopt;
  const Token* found = nullptr;
  for (const Token& token : tokens_) {
    const bool same = CRYPTO_memcmp(token.digest.data(), digest.data(), digest.size()) == 0;
    found = same ? &token : found;
  }
  if (found == nullptr) return std::nullopt;
  return found->name;
}

}  // namespace deepencoder
