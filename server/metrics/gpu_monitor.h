// What the driver says of the GPUs that the server uses, for Prometheus. A thread of its own asks at a
// pace; a scrape shows what was told last and never waits for the driver.
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "server/log.h"

namespace deepencoder {

struct GpuAddress {
  int device;              // ordinal, the label of the samples
  std::string pci_bus_id;  // empty: unknown, the device is left out

  bool operator==(const GpuAddress&) const = default;
};

struct GpuMonitorOptions {
  std::string library = "libnvidia-ml.so.1";  // as the loader finds it
  absl::Duration period = absl::Seconds(1);   // 0: never ask
};

class GpuMonitor final : public prometheus::Collectable {
 public:
  // `clock` and `logger` must outlive it.
  GpuMonitor(GpuMonitorOptions options, const Clock* clock, const Logger* logger);
  // Returns soon, even while a call to the driver hangs: the thread is then left behind.
  ~GpuMonitor() override;
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // From now on these. The library is not looked for before there is one with an address.
  void SetDevices(std::vector<GpuAddress> devices);

  // Without families for what is not known: no library, no device, nothing heard for a while.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  // The thread's too, which may be left behind.
  const std::shared_ptr<State> state_;
};

}  // namespace deepencoder
