// deepencoder-stress SERVER SECONDS CLIENTS SHARING IMAGE...: RunStress against a server that runs, wherever.
// Prints the counts as JSON; exit status 1 if a reply was wrong, 2 for wrong usage, 3 if nothing could be
// sent.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "client/client.h"
#include "tests/integration/stress/stress.h"

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fputs("usage: deepencoder-stress SERVER SECONDS CLIENTS SHARING IMAGE...\n", stderr);
    return 2;
  }
  deepencoder::StressOptions options;
  options.server = argv[1];
  options.duration = absl::Seconds(std::atoi(argv[2]));
  options.clients = std::max(1, std::atoi(argv[3]));
  options.sharing = std::clamp(std::atoi(argv[4]), 0, options.clients);
  for (int i = 5; i < argc; ++i) {
    const auto image = deepencoder::client::ReadImageFile(argv[i]);
    if (!image.ok()) {
      std::fprintf(stderr, "%s: %s\n", argv[i], image.status().ToString().c_str());
      return 2;
    }
    options.images.emplace_back(argv[i], image->encoded);
  }
  options.items = std::max<int>(options.items, static_cast<int>(options.images.size()));
  const auto report = deepencoder::RunStress(options);
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.status().ToString().c_str());
    return 3;
  }
  std::fputs(report->ToJson().c_str(), stdout);
  for (const std::string& wrong : report->wrong) std::fprintf(stderr, "%s\n", wrong.c_str());
  return report->wrong.empty() ? 0 : 1;
}
