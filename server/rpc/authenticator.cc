#include "server/rpc/authenticator.h"

#include <algorithm>
#include <utility>

namespace deepencoder {
namespace {

// RFC 6750; the scheme's case does not matter (RFC 9110).
std::optional<std::string_view> BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return std::nullopt;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kScheme[i]) return std::nullopt;
  }
  return authorization.substr(kScheme.size());
}

// Of "/package.Service/Method". Empty if the path has another form: gRPC asks before it looks whether there
// is such a method.
std::string_view ServiceOf(std::string_view path) {
  if (!path.starts_with('/')) return {};
  path.remove_prefix(1);
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

}  // namespace

Authenticator::Authenticator(std::vector<std::string> open, RpcObserver* observer,
                             const Logger* logger)
    : open_(std::move(open)), observer_(observer), logger_(logger) {}

absl::Status Authenticator::Check(std::string_view path,
                                  const std::vector<std::string_view>& authorization) const {
  if (std::find(open_.begin(), open_.end(), ServiceOf(path)) != open_.end()) {
    return absl::OkStatus();
  }
  if (authorization.empty()) {
    return Refuse(AuthFailure::kMissing, path,
                  "a bearer token is needed: there is no 'authorization' metadata");
  }
  if (authorization.size() > 1 || !BearerToken(authorization.front())) {
    return Refuse(AuthFailure::kMalformed, path,
                  "a bearer token is needed: expected one 'authorization: Bearer TOKEN'");
  }
  if (!NameOf(authorization.front())) {
    return Refuse(AuthFailure::kUnknown, path, "the bearer token is not valid");
  }
  return absl::OkStatus();
}

std::optional<std::string> Authenticator::NameOf(std::string_view authorization) const {
  const std::optional<std::string_view> token = BearerToken(authorization);
  if (!token || tokens_ == nullptr) return std::nullopt;
  return tokens_->Get()->NameOf(*token);
}

absl::Status Authenticator::Refuse(AuthFailure failure, std::string_view path,
                                   std::string_view text) const {
  observer_->OnAuthFailure(failure);
  logger_->Debug("call refused", {{"path", path}, {"reason", text}});
  return absl::UnauthenticatedError(std::string(text));
}

}  // namespace deepencoder
