#include "server/metrics/exposition.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"

namespace deepencoder {
namespace {

// A connection holds a thread of the HTTP server until it has sent its request: the library's two threads and 30
// seconds would let two silent ones keep every scrape waiting.
constexpr char kThreads[] = "8";
constexpr char kRequestTimeoutMs[] = "2000";

}  // namespace

absl::StatusOr<std::unique_ptr<Exposition>> Exposition::Start(
    const std::string& address, std::vector<std::shared_ptr<prometheus::Collectable>> sources) {
  std::unique_ptr<prometheus::Exposer> exposer;
  try {  // the library's constructor throws where it cannot listen
    exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", address, "num_threads", kThreads,
                                 "request_timeout_ms", kRequestTimeoutMs});
  } catch (const std::exception&) {
    return absl::UnavailableError("cannot listen on " + address +
                                  " for metrics: not HOST:PORT, or the address is in use");
  }
  for (const auto& source : sources) exposer->RegisterCollectable(source);
  const std::vector<int> ports = exposer->GetListeningPorts();
  std::string real = address;
  if (!ports.empty()) {
    real = address.substr(0, address.rfind(':') + 1) + std::to_string(ports.front());
  }
  return std::unique_ptr<Exposition>(
      new Exposition(std::move(exposer), std::move(real), std::move(sources)));
}

Exposition::Exposition(std::unique_ptr<prometheus::Exposer> exposer, std::string address,
                       std::vector<std::shared_ptr<prometheus::Collectable>> sources)
    : sources_(std::move(sources)), exposer_(std::move(exposer)), address_(std::move(address)) {}

Exposition::~Exposition() = default;

}  // namespace deepencoder
