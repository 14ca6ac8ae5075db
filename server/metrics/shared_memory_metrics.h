// What the clients' shared memory regions hold, read when Prometheus scrapes.
#pragma once

#include <prometheus/collectable.h>

#include <vector>

#include "server/shared_memory/region_table.h"

namespace deepencoder {

class SharedMemoryMetrics final : public prometheus::Collectable {
 public:
  // `table` outlives this; null: no memory is shared, and all values stay 0.
  explicit SharedMemoryMetrics(const RegionTable* table) : table_(table) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const RegionTable* const table_;
};

}  // namespace deepencoder
