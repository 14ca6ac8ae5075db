#include "server/metrics/shared_memory_metrics.h"

#include <cstdint>

#include "server/metrics/family.h"

namespace deepencoder {
namespace {

struct Values {
  int64_t regions = 0, bytes = 0, bytes_read = 0, bytes_written = 0, idle = 0, client = 0;
};

Values ValuesOf(const RegionTable* table) {
  if (table == nullptr) return {};
  const RegionUsage& usage = table->usage();
  return {.regions = usage.regions,
          .bytes = usage.bytes,
          .bytes_read = usage.bytes_read,
          .bytes_written = usage.bytes_written,
          .idle = table->ended_idle(),
          .client = table->ended_with_client()};
}

}  // namespace

std::vector<prometheus::MetricFamily> SharedMemoryMetrics::Collect() const {
  const Values values = ValuesOf(table_);
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&families](MetricId id) -> prometheus::MetricFamily& {
    return families.emplace_back(MakeFamily(id));
  };
  AddSample(add(MetricId::kSharedMemoryRegions), static_cast<double>(values.regions));
  AddSample(add(MetricId::kSharedMemoryBytes), static_cast<double>(values.bytes));
  prometheus::MetricFamily& copied = add(MetricId::kSharedMemoryCopied);
  AddSample(copied, static_cast<double>(values.bytes_read), {{"direction", "read"}});
  AddSample(copied, static_cast<double>(values.bytes_written), {{"direction", "write"}});
  prometheus::MetricFamily& ended = add(MetricId::kSharedMemoryEnded);
  AddSample(ended, static_cast<double>(values.idle), {{"reason", "idle"}});
  AddSample(ended, static_cast<double>(values.client), {{"reason", "client_ended"}});
  return families;
}

}  // namespace deepencoder
