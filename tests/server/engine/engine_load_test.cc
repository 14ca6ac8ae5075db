// The whole engine under load from many threads: each request gets one answer, right or explained, and the
// counters add up to what the clients saw.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/server/engine/engine_fixture.h"

namespace deepencoder {
namespace {

constexpr int kClients = 200, kRequestsEach = 10;

struct Outcomes {
  std::atomic<int64_t> ok{0}, full{0}, deadline{0}, cancelled{0}, invalid{0}, fault{0}, other{0};
  std::atomic<int64_t> wrong_rows{0}, twice{0};

  int64_t Sum() const { return ok + full + deadline + cancelled + invalid + fault + other; }
};

// With slots of one thread, and of two.
class EngineLoadTest : public EngineTest, public ::testing::WithParamInterface<bool> {
 protected:
  // One request of `tag`; whichever kind. Waits for the answer if `wait`.
  void Run(int tag, std::mt19937* random, bool wait) {
    EncodeJob job = (*random)() % 8 == 0 ? RawJob(tag, Mode::kGundam, 1300, 100)
                                         : RawJob(tag, Mode::kTiny, 4, 4);
    switch ((*random)() % 16) {
      case 0:
        std::get<RawPixels>(job.image).width = 9;  // has not so many pixels
        break;
      case 1:
        job.deadline = absl::Now() + absl::Microseconds((*random)() % 3000);
        break;
      case 2:
        job.cancel = std::make_shared<CancelFlag>();
        break;
      default:
        break;
    }
    const std::shared_ptr<CancelFlag> cancel = job.cancel;
    const auto times = std::make_shared<std::atomic<int>>(0);
    const auto answered = std::make_shared<Gate>();
    answered->Close();
    engine_->Encode(std::move(job), [=, this](const absl::StatusOr<EncodeResult>& answer) {
      if (++*times > 1) ++outcomes_.twice;
      Note(answer, tag);
      answered->Open();
    });
    if (cancel != nullptr) cancel->Cancel();
    if (wait) answered->Pass();
  }

  void Note(const absl::StatusOr<EncodeResult>& answer, int tag) {
    switch (answer.status().code()) {
      case absl::StatusCode::kOk:
        ++outcomes_.ok;
        // With any of the weights it may have met.
        if (CheckRows(*answer, 0, tag) != "" && CheckRows(*answer, 1, tag) != "") {
          ++outcomes_.wrong_rows;
        }
        break;
      case absl::StatusCode::kResourceExhausted:
        ++outcomes_.full;
        break;
      case absl::StatusCode::kDeadlineExceeded:
        ++outcomes_.deadline;
        break;
      case absl::StatusCode::kCancelled:
        ++outcomes_.cancelled;
        break;
      case absl::StatusCode::kInvalidArgument:
        ++outcomes_.invalid;
        break;
      case absl::StatusCode::kInternal:
        ++outcomes_.fault;
        break;
      default:
        ++outcomes_.other;
    }
  }

  // 200 clients, ten requests each: half wait for each answer, half send all at once.
  void Burst(const std::function<int(int client, int request)>& tag) {
    std::vector<std::thread> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        std::mt19937 random(client);
        for (int request = 0; request < kRequestsEach; ++request) {
          Run(tag(client, request), &random, client % 2 == 0);
        }
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  }

  void ExpectSums(int64_t requests) {
    EXPECT_EQ(outcomes_.Sum(), requests);
    EXPECT_EQ(outcomes_.twice, 0);
    EXPECT_EQ(outcomes_.wrong_rows, 0);
    EXPECT_EQ(outcomes_.other, 0);
    EXPECT_GT(outcomes_.ok, 0);
    EXPECT_GT(outcomes_.invalid, 0);
    EXPECT_EQ(observer_.images, outcomes_.ok);
    EXPECT_EQ(observer_.AllRejects(), outcomes_.full);
    EXPECT_EQ(observer_.drops[static_cast<int>(DropReason::kDeadline)], outcomes_.deadline);
    EXPECT_EQ(observer_.drops[static_cast<int>(DropReason::kCancelled)], outcomes_.cancelled);
    EXPECT_EQ(observer_.in_flight_images, 0);
    EXPECT_EQ(observer_.in_flight_bytes, 0);
    // A thread tells that it is idle, or that it threw out what was answered, after the answer.
    engine_.reset();
    EXPECT_EQ(observer_.queue_items, 0);
    EXPECT_EQ(observer_.queue_bytes, 0);
    EXPECT_EQ(observer_.lowest_queue, 0);
    EXPECT_EQ(observer_.busy_decoders, 0);
    for (const auto& device : devices_) {
      EXPECT_LE(device->most_calls, GetParam() ? 2 : 1);
      EXPECT_FALSE(device->destroyed_in_call);
      EXPECT_FALSE(device->third_call);
    }
  }

  void StartOnSteadyClock(EngineOptions options, int devices, int slots) {
    std::vector<DeviceSlots> made;
    for (int i = 0; i < devices; ++i) {
      devices_.push_back(std::make_shared<FakeDevice>());
      devices_.back()->overlaps = GetParam();
      made.push_back(MakeFakeSlots(devices_.back(), slots, i, {1, 2, 4, 8, 16, 32}));
    }
    auto engine = ServingEngine::Create(std::move(options), std::move(made), FakeSpecialRows(),
                                        &observer_, &steady_clock_);
    ASSERT_TRUE(engine.ok());
    engine_ = *std::move(engine);
  }

  SteadyClock steady_clock_;
  Outcomes outcomes_;
};

INSTANTIATE_TEST_SUITE_P(Threads, EngineLoadTest, ::testing::Values(false, true),
                         [](const auto& test) { return test.param ? "Two" : "One"; });

int Distinct(int client, int request) { return client * kRequestsEach + request; }

TEST_P(EngineLoadTest, EachOfABurstGetsOneAnswer) {
  EngineOptions options;
  options.decode_threads = 4;
  options.limits.images = 2000;
  options.limits.views = 100'000;
  StartOnSteadyClock(options, 2, 2);
  Burst(Distinct);
  ExpectSums(kClients * kRequestsEach);
  EXPECT_EQ(outcomes_.full, 0);
  EXPECT_EQ(outcomes_.fault, 0);
}

TEST_P(EngineLoadTest, BoundsHoldInABurst) {
  EngineOptions options;
  options.decode_threads = 2;
  options.limits.images = 40;
  options.limits.bytes = int64_t{100} << 20;
  StartOnSteadyClock(options, 1, 1);
  Burst(Distinct);
  ExpectSums(kClients * kRequestsEach);
  EXPECT_GT(outcomes_.full, 0);
  EXPECT_LE(observer_.max_in_flight_images, 40);
  EXPECT_LE(observer_.max_in_flight_bytes, int64_t{100} << 20);
}

TEST_P(EngineLoadTest, FaultsFailBatchesAndNothingElse) {
  EngineOptions options;
  options.decode_threads = 2;
  options.limits.images = 2000;
  options.limits.views = 100'000;
  StartOnSteadyClock(options, 2, 2);
  std::atomic<bool> done{false};
  std::thread saboteur([&] {
    while (!done) {
      // One at a time, so that no slot fails often enough in a row to be given up.
      device(0).encode_faults = 1;
      std::this_thread::yield();
      device(0).encode_faults = 0;
      std::this_thread::yield();
      device(0).rows_faults = 1;
      std::this_thread::yield();
      device(0).rows_faults = 0;
      std::this_thread::yield();
    }
  });
  Burst(Distinct);
  done = true;
  saboteur.join();
  ExpectSums(kClients * kRequestsEach);
}

TEST_P(EngineLoadTest, HitsMissesAndFlightsMix) {
  EngineOptions options;
  options.decode_threads = 4;
  options.limits.images = 2000;
  options.limits.views = 100'000;
  options.cache_bytes = size_t{2} << 20;  // a dozen results: others are forgotten
  StartOnSteadyClock(options, 1, 2);
  Burst([](int client, int request) { return (client * 7 + request) % 40; });
  ExpectSums(kClients * kRequestsEach);
  EXPECT_GT(observer_.hits, 0);
  EXPECT_LE(observer_.cache_bytes, int64_t{2} << 20);
}

TEST_P(EngineLoadTest, WeightsAreSwappedUnderLoad) {
  EngineOptions options;
  options.decode_threads = 2;
  options.limits.images = 2000;
  options.limits.views = 100'000;
  options.cache_bytes = size_t{8} << 20;
  StartOnSteadyClock(options, 1, 2);
  std::vector<std::shared_ptr<FakeDevice>> fresh;
  std::atomic<bool> done{false};
  std::thread swapper([&] {
    while (!done) {
      fresh.push_back(std::make_shared<FakeDevice>());
      fresh.back()->overlaps = GetParam();
      fresh.back()->salt = fresh.size() % 2;
      std::vector<DeviceSlots> devices;
      devices.push_back(MakeFakeSlots(fresh.back(), 2, 0, {1, 2, 4, 8, 16, 32}));
      ASSERT_TRUE(engine_->SwapBackends(std::move(devices), FakeSpecialRows()).ok());
    }
  });
  Burst(Distinct);
  done = true;
  swapper.join();
  ExpectSums(kClients * kRequestsEach);
  EXPECT_EQ(outcomes_.fault, 0);
  EXPECT_GT(fresh.size(), 1u);
  for (size_t i = 0; i + 1 < fresh.size(); ++i) EXPECT_TRUE(fresh[i]->backend_destroyed);
}

}  // namespace
}  // namespace deepencoder
