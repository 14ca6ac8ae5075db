#include "server/metrics/gpu_monitor.h"

#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "server/engine/mutex.h"
#include "server/engine/thread_name.h"
#include "server/metrics/family.h"
#include "server/metrics/nvml.h"

namespace deepencoder {
namespace {

// Older readings are not shown: a graph with a gap says more than a line that is frozen.
constexpr int kPeriodsShown = 5;
// How long an end waits for a call to the driver that is under way.
constexpr absl::Duration kEndPatience = absl::Seconds(1);

struct Gpu {
  GpuAddress address;
  Nvml::Device handle;
  GpuIdentity identity;
};

struct GpuSample {
  int device;
  GpuIdentity identity;
  std::vector<GpuReading> readings;
};

// The label behind "device" in the table's row.
std::string DetailLabel(const MetricSpec& spec) {
  const std::string labels = spec.labels;
  return labels.substr(labels.find(',') + 1);
}

}  // namespace

struct GpuMonitor::State {
  State(GpuMonitorOptions options_in, const Clock* clock_in, const Logger* logger_in)
      : options(std::move(options_in)), clock(clock_in), logger(logger_in) {}

  const GpuMonitorOptions options;
  // Used under the mutex while `stop` is false only: the thread may outlive them.
  const Clock* const clock;
  const Logger* const logger;

  mutable Mutex mutex;
  CondVar changed;
  bool started ABSL_GUARDED_BY(mutex) = false;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;  // the thread touches nothing any more
  std::vector<GpuAddress> devices ABSL_GUARDED_BY(mutex);
  std::vector<GpuSample> samples ABSL_GUARDED_BY(mutex);
  absl::Time sampled ABSL_GUARDED_BY(mutex) = absl::InfinitePast();

  void Debug(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (stop) return;
    logger->Debug("no metrics of the GPU's driver", {{"reason", std::string(why.message())}});
  }
};

GpuMonitor::GpuMonitor(GpuMonitorOptions options, const Clock* clock, const Logger* logger)
    : state_(std::make_shared<State>(std::move(options), clock, logger)) {}

GpuMonitor::~GpuMonitor() {
  const MutexLock lock(state_->mutex);
  state_->stop = true;
  state_->changed.NotifyAll();
  // A real clock, whatever the injected one says: the driver's time is real.
  const absl::Time deadline = absl::Now() + kEndPatience;
  while (state_->started && !state_->ended) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    state_->changed.WaitFor(state_->mutex, left);
  }
}

void GpuMonitor::SetDevices(std::vector<GpuAddress> devices) {
  if (state_->options.period <= absl::ZeroDuration()) return;
  std::erase_if(devices, [](const GpuAddress& address) { return address.pci_bus_id.empty(); });
  const MutexLock lock(state_->mutex);
  state_->devices = std::move(devices);
  state_->changed.NotifyAll();
  if (state_->started || state_->devices.empty()) return;
  state_->started = true;
  // Detached, since nobody can wait for a driver that hangs; the destructor waits for `ended`.
  std::thread(Run, state_).detach();
}

void GpuMonitor::Run(const std::shared_ptr<State>& state) {
  NameThisThread("gpu-monitor");
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(state->options.library);
  std::vector<GpuAddress> known;
  std::vector<Gpu> gpus;
  state->mutex.Lock();
  if (!nvml.ok()) state->Debug(nvml.status());
  while (nvml.ok() && !state->stop) {
    const std::vector<GpuAddress> wanted = state->devices;
    state->mutex.Unlock();

    absl::Status missing;
    if (wanted != known) {
      gpus.clear();
      for (const GpuAddress& address : wanted) {
        const absl::StatusOr<Nvml::Device> handle = (*nvml)->Find(address.pci_bus_id);
        missing.Update(handle.status());
        if (handle.ok()) gpus.push_back({address, *handle, (*nvml)->Identify(*handle)});
      }
      known = wanted;
    }
    std::vector<GpuSample> samples;
    for (const Gpu& gpu : gpus) {
      samples.push_back({gpu.address.device, gpu.identity, (*nvml)->Read(gpu.handle)});
    }

    state->mutex.Lock();
    if (state->stop) break;
    if (!missing.ok()) state->Debug(missing);
    state->samples = std::move(samples);
    state->sampled = state->clock->Now();
    state->changed.WaitFor(state->mutex, state->options.period);
  }
  state->mutex.Unlock();
  if (nvml.ok()) nvml->reset();
  const MutexLock lock(state->mutex);
  state->ended = true;
  state->changed.NotifyAll();
}

std::vector<prometheus::MetricFamily> GpuMonitor::Collect() const {
  std::map<MetricId, prometheus::MetricFamily> families;
  const MutexLock lock(state_->mutex);
  if (state_->clock->Now() - state_->sampled > kPeriodsShown * state_->options.period) return {};
  const auto family = [&families](MetricId id) -> prometheus::MetricFamily& {
    const auto [at, is_new] = families.try_emplace(id);
    if (is_new) at->second = MakeFamily(id);
    return at->second;
  };
  for (const GpuSample& sample : state_->samples) {
    const std::string device = std::to_string(sample.device);
    AddSample(family(MetricId::kGpuInfo), 1,
              {{"device", device},
               {"name", sample.identity.name},
               {"uuid", sample.identity.uuid},
               {"driver", sample.identity.driver}});
    for (const GpuReading& reading : sample.readings) {
      std::vector<std::pair<std::string, std::string>> labels = {{"device", device}};
      if (reading.detail != nullptr) {
        labels.emplace_back(DetailLabel(SpecOf(reading.metric)), reading.detail);
      }
      AddSample(family(reading.metric), reading.value, labels);
    }
  }
  std::vector<prometheus::MetricFamily> list;
  for (auto& [id, made] : families) list.push_back(std::move(made));
  return list;
}

}  // namespace deepencoder
