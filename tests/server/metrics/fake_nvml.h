// What a fake libnvidia-ml.so.1 says, and how a test tells it so.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>

// One GPU, at 0000:3b:00.0. Tests change it before a monitor starts, or where it is atomic.
struct FakeNvml {
  int init_code = 0;    // what nvmlInit_v2 returns
  std::string failing;  // the function of this name returns "not supported"
  std::atomic<int> inits{0}, shutdowns{0}, readings{0};
  std::atomic<unsigned> utilization{42};          // percent
  std::atomic<unsigned long long> reasons{0x44};  // power cap, hardware thermal

  // While true, the question for the utilisation does not return.
  std::mutex mutex;
  std::condition_variable changed;
  bool hang = false;
  int hanging = 0;  // calls that do
};

#define FAKE_NVML_STATE "fake_nvml_state"
