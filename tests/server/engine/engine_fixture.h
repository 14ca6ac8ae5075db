// A ServingEngine on fake devices.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/serving_engine.h"
#include "tests/server/engine/fakes.h"

namespace deepencoder {

class EngineTest : public ::testing::Test {
 protected:
  // One decode thread: requests are prepared in the order they come, so that a test can tell from a later
  // one that an earlier one has been.
  EngineOptions Options() const {
    EngineOptions options;
    options.decode_threads = 1;
    return options;
  }

  // `devices` fake devices of `slots` each.
  void Start(EngineOptions options, int devices = 1, int slots = 1,
             std::vector<int> buckets = {1, 2, 4, 8}) {
    std::vector<DeviceSlots> made;
    for (int i = 0; i < devices; ++i) {
      devices_.push_back(std::make_shared<FakeDevice>());
      devices_.back()->overlaps = overlaps_;
      made.push_back(MakeFakeSlots(devices_.back(), slots, i, buckets));
    }
    auto engine = ServingEngine::Create(std::move(options), std::move(made), FakeSpecialRows(),
                                        &observer_, &clock_);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
  }

  // The answer goes to answers_ under `number`.
  void Send(int number, EncodeJob job) { engine_->Encode(std::move(job), answers_.For(number)); }
  void Send(int tag) { Send(tag, RawJob(tag)); }

  absl::StatusCode CodeOf(int number) const { return answers_.Get(number).status().code(); }

  FakeDevice& device(int index = 0) { return *devices_[index]; }

  bool overlaps_ = false;  // slots of two threads
  FakeClock clock_;
  CountingObserver observer_;
  Answers answers_;
  std::vector<std::shared_ptr<FakeDevice>> devices_;
  std::unique_ptr<ServingEngine> engine_;  // goes first: it calls the above
};

}  // namespace deepencoder
