// Encodes images with a running server and says how many placeholder tokens each needs:
//
//   encode_pages 127.0.0.1:50051 page1.png page2.png
#include <deepencoder/client.h>

#include <cstdio>
#include <future>
#include <string>
#include <utility>
#include <vector>

namespace client = deepencoder::client;

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: encode_pages SERVER IMAGE...\n", stderr);
    return 2;
  }
  client::ClientOptions options;
  options.retry.max_attempts = 3;
  const auto connection = client::Client::Create(argv[1], options);
  if (!connection.ok()) {
    std::fprintf(stderr, "%s\n", connection.status().ToString().c_str());
    return 2;
  }

  // All calls are under way before the first answer is waited for.
  std::vector<std::pair<std::string, std::future<absl::StatusOr<client::Embeddings>>>> calls;
  bool failed = false;
  for (int i = 2; i < argc; ++i) {
    absl::StatusOr<client::Image> image = client::ReadImageFile(argv[i]);
    if (!image.ok()) {
      std::fprintf(stderr, "%s\n", image.status().ToString().c_str());
      failed = true;
      continue;
    }
    const client::EncodeOptions base{.mode = client::Mode::kBase};
    calls.emplace_back(argv[i], (*connection)->EncodeFuture(*std::move(image), base));
  }
  for (auto& [name, call] : calls) {
    const absl::StatusOr<client::Embeddings> rows = call.get();
    if (!rows.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), rows.status().ToString().c_str());
      failed = true;
      continue;
    }
    std::printf("%s: %d tokens, first value %g\n", name.c_str(), rows->rows,
                static_cast<double>(rows->ToFloats().front()));
  }
  return failed ? 1 : 0;
}
