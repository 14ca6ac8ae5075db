// A file of bearer tokens: what is refused is never in the error's text, what is taken can be used.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/security/token_set.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/lines.h"

namespace deepencoder::fuzz {
namespace {

// What a line holds behind its name, without the blanks at its end.
std::string_view SecretOf(std::string_view line) {
  line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
  return line.substr(std::min(line.find(':'), line.size() - 1) + 1);
}

// What an error says behind the number of its line.
std::string Reason(const absl::Status& refusal) {
  const std::string text(refusal.message());
  const size_t behind = text.find(": ");
  return text.starts_with("line ") && behind != std::string::npos ? text.substr(behind + 2) : text;
}

// The errors that there are, by files that hold no secrets.
std::set<std::string> Reasons() {
  std::string many;
  for (int i = 0; i <= 1024; ++i) many += absl::StrCat("a:0123456789abcdef", i, "\n");
  std::set<std::string> reasons;
  for (const std::string& wrong : {std::string(), std::string("a"), std::string("a:b"),
                                   std::string("a:sha256:b"), many.substr(0, 40) + many, many}) {
    reasons.insert(Reason(TokenSet::Parse(wrong).status()));
  }
  return reasons;
}

void RequireSilence(const absl::Status& refusal) {
  static const auto* const reasons = new std::set<std::string>(Reasons());
  RequireRefusal(refusal);
  Require(reasons->contains(Reason(refusal)), "an error does not hold what is in the file");
}

void RequireUse(const TokenSet& tokens, const std::vector<std::string_view>& lines) {
  Require(tokens.size() >= 1 && tokens.size() <= lines.size(), "a token comes from a line");
  Require(!tokens.NameOf(""), "nothing is no token");
  for (const std::string_view line : lines) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos || line.front() == '#') continue;
    const std::string_view secret = SecretOf(line);
    const std::optional<std::string> name = tokens.NameOf(secret);
    if (secret.starts_with("sha256:")) {
      Require(!name, "a digest is no secret");
    } else {
      Require(name == line.substr(0, line.find(':')), "a token has the name of its line");
      Require(tokens.size() > 1 || !tokens.NameOf(secret.substr(1)), "a part of a token is none");
    }
  }
}

}  // namespace

void TryInput(const uint8_t* data, size_t size) {
  const std::string_view text = AsText(data, size);
  const std::vector<std::string_view> lines = LinesOf(text);
  const absl::StatusOr<TokenSet> tokens = TokenSet::Parse(text);
  if (!tokens.ok()) return RequireSilence(tokens.status());
  RequireUse(*tokens, lines);
}

}  // namespace deepencoder::fuzz
