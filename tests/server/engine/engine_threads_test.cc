// An engine whose threads cannot all be started.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

#include "tests/server/engine/engine_fixture.h"

namespace {

std::atomic<int> threads_left{-1};  // pthread_create fails after so many; -1: never

}  // namespace

// In the program itself, so in front of the C library's.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attr,
                                                                     void* (*start)(void*),
                                                                     void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  int left = threads_left.load();
  while (left > 0 && !threads_left.compare_exchange_weak(left, left - 1)) {
  }
  return left == 0 ? EAGAIN : real(thread, attr, start, argument);
}

namespace deepencoder {
namespace {

constexpr int kDecodeThreads = 3, kSlots = 2, kDevices = 2;
// The watchdog's and the one that replies come on top.
constexpr int kThreads = kDecodeThreads + kDevices * kSlots + 2;

std::vector<DeviceSlots> Devices(const std::shared_ptr<FakeDevice>& device) {
  std::vector<DeviceSlots> devices;
  for (int i = 0; i < kDevices; ++i) devices.push_back(MakeFakeSlots(device, kSlots, i));
  return devices;
}

EngineOptions Options() {
  EngineOptions options;
  options.decode_threads = kDecodeThreads;
  options.device_timeout = absl::Seconds(10);
  return options;
}

TEST(EngineThreadsTest, WithTooFewThreadsThereIsAnErrorAndNothingLeft) {
  FakeClock clock;
  CountingObserver observer;
  for (int threads = 0; threads < kThreads; ++threads) {
    const auto device = std::make_shared<FakeDevice>();
    threads_left = threads;
    const auto engine =
        ServingEngine::Create(Options(), Devices(device), FakeSpecialRows(), &observer, &clock);
    threads_left = -1;
    ASSERT_FALSE(engine.ok()) << threads;
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(engine.status().message()), testing::HasSubstr("threads"));
    EXPECT_EQ(device->slots_destroyed, device->slots_made);
    EXPECT_TRUE(device->backend_destroyed);
    EXPECT_FALSE(device->slot_outlived_backend);
  }
}

TEST(EngineThreadsTest, ASwapThatGetsNoThreadsChangesNothing) {
  FakeClock clock;
  CountingObserver observer;
  Answers answers;
  const auto device = std::make_shared<FakeDevice>();
  auto engine =
      ServingEngine::Create(Options(), Devices(device), FakeSpecialRows(), &observer, &clock);
  ASSERT_TRUE(engine.ok());
  for (int threads = 0; threads < kDevices * kSlots; ++threads) {
    const auto fresh = std::make_shared<FakeDevice>();
    threads_left = threads;
    const absl::Status status = (*engine)->SwapBackends(Devices(fresh), FakeSpecialRows());
    threads_left = -1;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(fresh->slots_destroyed, fresh->slots_made);
    EXPECT_FALSE(fresh->slot_outlived_backend);
  }
  (*engine)->Encode(RawJob(1), answers.For(1));
  answers.Await(1);
  EXPECT_TRUE(answers.Get(1).ok());
}

}  // namespace
}  // namespace deepencoder
