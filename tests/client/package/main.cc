// A program of a user, with nothing of the source tree.
#include <deepencoder/client.h>

#include <cstdio>
#include <string>

int main() {
  namespace client = deepencoder::client;
  client::ClientOptions options;
  options.retry.max_attempts = 1;
  const auto nobody = client::Client::Create("unix:/no/such/socket", options);
  if (!nobody.ok()) return 1;
  client::Image image;
  image.encoded = "bytes";
  const auto rows = (*nobody)->Encode(image);
  std::puts(std::string(rows.status().message()).c_str());
  return rows.status().code() == absl::StatusCode::kUnavailable ? 0 : 1;
}
