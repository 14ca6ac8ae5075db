#include "server/metrics/gpu_monitor.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "server/engine/mutex.h"
#include "server/metrics/metric_table.h"
#include "tests/server/metrics/fake_nvml.h"
#include "tests/server/metrics/samples.h"

namespace deepencoder {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;
using testing::StartsWith;

constexpr char kAddress[] = "0000:3b:00.0";

class ManualClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(seconds_.load()); }
  void Advance(int seconds) { seconds_ += seconds; }

 private:
  std::atomic<int64_t> seconds_{1'000'000};
};

class GpuMonitorTest : public testing::Test {
 protected:
  ~GpuMonitorTest() override {
    fake_->init_code = 0;
    fake_->failing.clear();
    fake_->reasons = 0x44;
  }

  static FakeNvml* StateOf(const char* library) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << dlerror();
    return reinterpret_cast<FakeNvml* (*)()>(dlsym(handle, FAKE_NVML_STATE))();
  }

  std::unique_ptr<GpuMonitor> Monitor(const std::string& library) {
    return std::make_unique<GpuMonitor>(
        GpuMonitorOptions{.library = library, .period = absl::Milliseconds(5)}, &clock_, &logger_);
  }

  // Looks until it holds; CTest's timeout is the end of it.
  static void Await(const std::function<bool()>& condition) {
    while (!condition()) std::this_thread::yield();
  }
  void AwaitLine() {
    const MutexLock lock(mutex_);
    while (lines_.empty()) logged_.Wait(mutex_);
  }

  FakeNvml* const fake_ = StateOf(FAKE_NVML);
  ManualClock clock_;
  Mutex mutex_;
  CondVar logged_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  Logger logger_{LogLevel::kDebug, LogFormat::kText, [this](std::string_view line) {
                   const MutexLock lock(mutex_);
                   lines_.emplace_back(line);
                   logged_.NotifyAll();
                 }};
};

TEST_F(GpuMonitorTest, ShowsWhatTheDriverSays) {
  const auto monitor = Monitor(FAKE_NVML);
  monitor->SetDevices({{3, kAddress}});
  Await([&] { return !monitor->Collect().empty(); });
  auto samples = Samples(*monitor);
  const auto expect = [&samples](const std::string& name, const std::string& value) {
    EXPECT_EQ(samples["deepencoder_gpu_" + name], value) << name;
  };
  expect(
      "info{device=\"3\",name=\"Fake GPU\",uuid=\"GPU-11111111-2222-3333-4444-555555555555\","
      "driver=\"580.00\"}",
      "1");
  expect("utilization_ratio{device=\"3\"}", "0.42");
  expect("memory_used_bytes{device=\"3\"}", "10737418240");
  expect("memory_total_bytes{device=\"3\"}", "107374182400");
  expect("power_watts{device=\"3\"}", "351.5");
  expect("power_limit_watts{device=\"3\"}", "700");
  expect("temperature_celsius{device=\"3\"}", "55");
  expect("clock_hertz{device=\"3\",clock=\"sm\"}", "1980000000");
  expect("clock_hertz{device=\"3\",clock=\"memory\"}", "3201000000");
  expect("ecc_errors_total{device=\"3\",kind=\"corrected\"}", "3");
  expect("ecc_errors_total{device=\"3\",kind=\"uncorrected\"}", "1");
  expect("throttled{device=\"3\",reason=\"power_cap\"}", "1");
  expect("throttled{device=\"3\",reason=\"hardware_slowdown\"}", "0");
  expect("throttled{device=\"3\",reason=\"sync_boost\"}", "0");
  expect("throttled{device=\"3\",reason=\"software_thermal\"}", "0");
  expect("throttled{device=\"3\",reason=\"hardware_thermal\"}", "1");
  expect("throttled{device=\"3\",reason=\"power_brake\"}", "0");
  EXPECT_EQ(samples.size(), 17U);
}

TEST_F(GpuMonitorTest, AsksAgainAndAgain) {
  const auto monitor = Monitor(FAKE_NVML);
  monitor->SetDevices({{0, kAddress}});
  const std::string idle = "deepencoder_gpu_throttled{device=\"0\",reason=\"hardware_thermal\"}";
  Await([&] { return Samples(*monitor)[idle] == "1"; });
  fake_->reasons = 0;
  Await([&] { return Samples(*monitor)[idle] == "0"; });
}

// Every label that is shown is declared in the table, and every family of the table is shown.
TEST_F(GpuMonitorTest, LabelsAreTheTables) {
  const auto monitor = Monitor(FAKE_NVML);
  monitor->SetDevices({{0, kAddress}});
  Await([&] { return !monitor->Collect().empty(); });
  size_t declared = 0;
  for (const MetricSpec& spec : MetricTable()) {
    declared += std::string_view(spec.name).starts_with("deepencoder_gpu_") ? 1 : 0;
  }
  const auto families = monitor->Collect();
  EXPECT_EQ(families.size(), declared);
  for (const prometheus::MetricFamily& family : families) {
    std::string labels;
    for (const auto& label : family.metric.front().label) {
      labels += (labels.empty() ? "" : ",") + label.name;
    }
    bool found = false;
    for (const MetricSpec& spec : MetricTable()) {
      if (family.name != spec.name) continue;
      found = true;
      EXPECT_EQ(labels, spec.labels) << spec.name;
      EXPECT_EQ(family.help, spec.help);
    }
    EXPECT_TRUE(found) << family.name;
  }
}

TEST_F(GpuMonitorTest, WhatCannotBeToldIsAbsent) {
  fake_->failing = "nvmlDeviceGetPowerUsage";
  const auto monitor = Monitor(FAKE_NVML);
  monitor->SetDevices({{0, kAddress}});
  Await([&] { return !monitor->Collect().empty(); });
  EXPECT_THAT(Samples(*monitor), Not(Contains(Key(StartsWith("deepencoder_gpu_power_watts")))));
  EXPECT_THAT(Samples(*monitor), Contains(Key(StartsWith("deepencoder_gpu_power_limit_watts"))));
}

TEST_F(GpuMonitorTest, OldDriverLacksSomeAndNamesTheReasonsOtherwise) {
  const auto monitor = Monitor(FAKE_NVML_OLD);
  monitor->SetDevices({{0, kAddress}});
  Await([&] { return !monitor->Collect().empty(); });
  const auto samples = Samples(*monitor);
  EXPECT_THAT(samples,
              Contains(Pair("deepencoder_gpu_throttled{device=\"0\",reason=\"power_cap\"}", "1")));
  EXPECT_THAT(samples, Contains(Key(HasSubstr("uuid=\"\",driver=\"\""))));
  for (const char* absent : {"temperature", "power_limit", "ecc"}) {
    EXPECT_THAT(samples, Not(Contains(Key(HasSubstr(absent)))));
  }
}

TEST_F(GpuMonitorTest, AHangingDriverStopsNeitherAScrapeNorTheEnd) {
  auto monitor = Monitor(FAKE_NVML);
  monitor->SetDevices({{0, kAddress}});
  Await([&] { return !monitor->Collect().empty(); });
  {
    std::unique_lock lock(fake_->mutex);
    fake_->hang = true;
    fake_->changed.wait(lock, [&] { return fake_->hanging > 0; });
  }
  EXPECT_THAT(monitor->Collect(), Not(IsEmpty()));
  clock_.Advance(60);  // what was heard so long ago says nothing of now
  EXPECT_THAT(monitor->Collect(), IsEmpty());
  monitor.reset();  // returns, with the call still under way

  std::unique_lock lock(fake_->mutex);
  EXPECT_EQ(fake_->hanging, 1);
  const int shutdowns = fake_->shutdowns;
  fake_->hang = false;
  fake_->changed.notify_all();
  lock.unlock();
  // The thread that was left behind finds its end by itself.
  Await([&] { return fake_->shutdowns > shutdowns; });
}

TEST_F(GpuMonitorTest, AbsentLibraryIsOneLineForDebugging) {
  {
    const auto monitor = Monitor("/nowhere/libnvidia-ml.so.1");
    monitor->SetDevices({{0, kAddress}});
    AwaitLine();
    EXPECT_THAT(monitor->Collect(), IsEmpty());
    monitor->SetDevices({{0, kAddress}, {1, kAddress}});
  }
  const MutexLock lock(mutex_);
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("debug"), HasSubstr("/nowhere"))));
}

TEST_F(GpuMonitorTest, DriverThatIsNotLoadedIsOneLineForDebugging) {
  fake_->init_code = 9;
  {
    const auto monitor = Monitor(FAKE_NVML);
    monitor->SetDevices({{0, kAddress}});
    AwaitLine();
    EXPECT_THAT(monitor->Collect(), IsEmpty());
  }
  const MutexLock lock(mutex_);
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("debug"), HasSubstr("Driver Not Loaded"))));
}

TEST_F(GpuMonitorTest, GpuThatTheDriverDoesNotHaveIsLeftOut) {
  const auto monitor = Monitor(FAKE_NVML);
  monitor->SetDevices({{0, "0000:99:00.0"}, {1, kAddress}});
  Await([&] { return !monitor->Collect().empty(); });
  EXPECT_THAT(Samples(*monitor), Contains(Key(HasSubstr("device=\"1\""))));
  EXPECT_THAT(Samples(*monitor), Not(Contains(Key(HasSubstr("device=\"0\"")))));
  AwaitLine();
  const MutexLock lock(mutex_);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("0000:99:00.0")));
}

TEST_F(GpuMonitorTest, NobodyIsAskedWithoutAGpuOrAPeriod) {
  const int inits = fake_->inits;
  {
    const auto cpu = Monitor(FAKE_NVML);
    cpu->SetDevices({{0, ""}});
    EXPECT_THAT(cpu->Collect(), IsEmpty());
    GpuMonitor off({.library = FAKE_NVML, .period = absl::ZeroDuration()}, &clock_, &logger_);
    off.SetDevices({{0, kAddress}});
    EXPECT_THAT(off.Collect(), IsEmpty());
  }
  EXPECT_EQ(fake_->inits, inits);
  const MutexLock lock(mutex_);
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace deepencoder
