// NVIDIA's management library, found at run time: what the driver says of a GPU as a whole. The few functions
// and constants of its published C interface that are used are declared in nvml.cc; no NVIDIA header is needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics/metric_table.h"

namespace deepencoder {

// One value of one GPU. `detail` is the label behind the device's (clock, kind, reason), null without one.
struct GpuReading {
  MetricId metric;
  const char* detail;
  double value;  // in the metric's unit
};

struct GpuIdentity {
  std::string name, uuid, driver;  // empty: unknown
};

// Calls may block for as long as the driver likes; one thread at a time.
class Nvml {
 public:
  // Loads and initialises the library. Errors: UNAVAILABLE (none, an unusable one, no driver).
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);
  ~Nvml();  // the library stays loaded: drivers do not like it otherwise
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // The library's own; null: none.
  using Device = void*;

  // `pci_bus_id` as "0000:3b:00.0". Errors: NOT_FOUND.
  absl::StatusOr<Device> Find(const std::string& pci_bus_id) const;
  GpuIdentity Identify(Device device) const;
  // What the GPU, the driver and the library can tell; the rest is left out.
  std::vector<GpuReading> Read(Device device) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<const Functions> functions);

  void ReadMemory(Device device, std::vector<GpuReading>& readings) const;
  void ReadEccErrors(Device device, std::vector<GpuReading>& readings) const;
  void ReadThrottling(Device device, std::vector<GpuReading>& readings) const;

  const std::unique_ptr<const Functions> functions_;
};

}  // namespace deepencoder
