// The HTTP endpoint that Prometheus scrapes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace prometheus {
class Collectable;
class Exposer;
}  // namespace prometheus

namespace deepencoder {

class Exposition {
 public:
  // Serves /metrics of all `sources` on `address` (host:port; port 0: a free one).
  // Errors: UNAVAILABLE (cannot listen there).
  static absl::StatusOr<std::unique_ptr<Exposition>> Start(
      const std::string& address, std::vector<std::shared_ptr<prometheus::Collectable>> sources);
  ~Exposition();

  // host:port with the real port.
  const std::string& address() const { return address_; }

 private:
  Exposition(std::unique_ptr<prometheus::Exposer> exposer, std::string address,
             std::vector<std::shared_ptr<prometheus::Collectable>> sources);

  const std::vector<std::shared_ptr<prometheus::Collectable>> sources_;
  const std::unique_ptr<prometheus::Exposer> exposer_;  // stopped before the sources go
  const std::string address_;
};

}  // namespace deepencoder
