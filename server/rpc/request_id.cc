#include "server/rpc/request_id.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>

namespace deepencoder {
namespace {

constexpr size_t kMaxLength = 128;

bool IsUsable(const std::string& id) {
  return !id.empty() && id.size() <= kMaxLength &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

std::string RandomId() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(generator()));
  return text;
}

}  // namespace

std::string TakeRequestId(grpc::ServerContextBase& context) {
  std::string id;
  const auto found = context.client_metadata().find(kRequestIdKey);
  if (found != context.client_metadata().end()) {
    id.assign(found->second.data(), found->second.size());
  }
  if (!IsUsable(id)) id = RandomId();
  context.AddTrailingMetadata(kRequestIdKey, id);
  return id;
}

}  // namespace deepencoder
