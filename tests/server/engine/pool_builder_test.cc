#include "server/engine/pool_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace deepencoder {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A device with a budget: a slot takes as much as its largest bucket, freed with it.
struct Budget {
  int free = 0;
  int backends = 0;  // alive
  int created = 0;
};

class BudgetSlot final : public EncoderSlot {
 public:
  BudgetSlot(Budget* budget, int size) : budget_(budget), size_(size) { budget_->free -= size_; }
  ~BudgetSlot() override { budget_->free += size_; }
  absl::Status Encode(int, std::span<const EncodeItem>, EncodeStats*) override {
    return absl::OkStatus();
  }

 private:
  Budget* const budget_;
  const int size_;
};

class BudgetBackend final : public Backend {
 public:
  BudgetBackend(Budget* budget, const BackendOptions& options) : budget_(budget) {
    info_.batch_buckets = options.batch_buckets;
    ++budget_->backends;
    ++budget_->created;
  }
  ~BudgetBackend() override { --budget_->backends; }
  const BackendInfo& info() const override { return info_; }
  absl::StatusOr<std::shared_ptr<const ViewSet>> MakeViews(const RgbImage&,
                                                           const ViewPlan&) override {
    return absl::InternalError("not a test of views");
  }
  absl::StatusOr<std::unique_ptr<EncoderSlot>> CreateSlot() override {
    const int size = info_.batch_buckets.back();
    if (size > budget_->free) return absl::ResourceExhaustedError("out of memory");
    return std::make_unique<BudgetSlot>(budget_, size);
  }
  std::vector<MemoryUse> Memory() const override { return {}; }
  size_t FreeMemory() const override { return static_cast<size_t>(budget_->free); }

 private:
  Budget* const budget_;
  BackendInfo info_;
};

class PoolBuilderTest : public ::testing::Test {
 protected:
  absl::StatusOr<DeviceSlots> Build(int budget, int slots) {
    budget_.free = budget;
    PoolOptions options;
    options.slots = slots;
    options.may_shrink = may_shrink_;
    return BuildPool(
        [this](const BackendOptions& backend) -> absl::StatusOr<std::unique_ptr<Backend>> {
          EXPECT_EQ(budget_.backends, 0) << "two backends at once";
          return std::make_unique<BudgetBackend>(&budget_, backend);
        },
        options, [this](const std::string& line) { log_.push_back(line); });
  }

  Budget budget_;
  bool may_shrink_ = true;
  std::vector<std::string> log_;
};

TEST_F(PoolBuilderTest, MakesWhatIsAskedForWhereItFits) {
  const auto pool = Build(64, 2);
  ASSERT_TRUE(pool.ok());
  EXPECT_THAT(pool->slots, SizeIs(2));
  EXPECT_THAT(pool->backend->info().batch_buckets, ElementsAre(1, 2, 4, 8, 16, 32));
  EXPECT_EQ(budget_.created, 1);
}

TEST_F(PoolBuilderTest, GivesUpLargeBatchesBeforeSlots) {
  const auto pool = Build(35, 2);
  ASSERT_TRUE(pool.ok());
  EXPECT_THAT(pool->slots, SizeIs(2));
  EXPECT_EQ(pool->backend->info().batch_buckets.back(), 16);
  // A slot of 32 fits, a second one does not; then two of 16.
  EXPECT_THAT(log_, ElementsAre(HasSubstr("slot 1 of 2 for 4 view sides x 6 batch sizes"),
                                HasSubstr("slot 2 of 2"),
                                AllOf(HasSubstr("memory is short"), HasSubstr("without 32")),
                                HasSubstr("slot 1 of 2 for 4 view sides x 5 batch sizes"),
                                HasSubstr("slot 2 of 2"), HasSubstr("2 slots with batch sizes")));
}

TEST_F(PoolBuilderTest, GivesUpSlotsBeforeSmallBatches) {
  const auto pool = Build(10, 3);
  ASSERT_TRUE(pool.ok());
  EXPECT_THAT(pool->slots, SizeIs(1));
  EXPECT_EQ(pool->backend->info().batch_buckets.back(), 8);
  EXPECT_THAT(log_.back(), HasSubstr("1 of 3 slots"));
}

TEST_F(PoolBuilderTest, GoesDownToOneSlotOfTheSmallestBatch) {
  const auto pool = Build(1, 2);
  ASSERT_TRUE(pool.ok());
  EXPECT_THAT(pool->slots, SizeIs(1));
  EXPECT_THAT(pool->backend->info().batch_buckets, ElementsAre(1));
}

TEST_F(PoolBuilderTest, SaysWhenNothingFits) {
  EXPECT_EQ(Build(0, 2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget_.backends, 0);
}

TEST_F(PoolBuilderTest, ShrinksOnlyWhereItMay) {
  may_shrink_ = false;
  EXPECT_EQ(Build(63, 2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget_.created, 1);
  EXPECT_EQ(budget_.free, 63);
  EXPECT_TRUE(Build(64, 2).ok());
}

TEST_F(PoolBuilderTest, OtherErrorsAreNotTriedAgain) {
  int calls = 0;
  const auto pool = BuildPool(
      [&](const BackendOptions&) -> absl::StatusOr<std::unique_ptr<Backend>> {
        ++calls;
        return absl::UnavailableError("no such device");
      },
      PoolOptions{}, [](const std::string&) {});
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, 1);
}

TEST_F(PoolBuilderTest, RefusesNothing) {
  PoolOptions no_buckets;
  no_buckets.backend.batch_buckets.clear();
  PoolOptions no_slots;
  no_slots.slots = 0;
  const CreateBackend never =
      [](const BackendOptions&) -> absl::StatusOr<std::unique_ptr<Backend>> {
    return absl::InternalError("called");
  };
  for (const PoolOptions& options : {no_buckets, no_slots}) {
    EXPECT_EQ(BuildPool(never, options, [](const std::string&) {}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace deepencoder
