#include "encoder/cuda/arena.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace deepencoder::cuda {
namespace {

TEST(ArenaPlan, SharesBytesBetweenLifetimesThatDoNotMeet) {
  ArenaPlan plan;
  const int early = plan.Add(1000, 0, 1);
  const int late = plan.Add(1000, 2, 3);
  plan.Place();
  EXPECT_EQ(plan.offset(early), plan.offset(late));
  EXPECT_EQ(plan.bytes(), 1024u);
}

TEST(ArenaPlan, KeepsBuffersOfOneStepApart) {
  ArenaPlan plan;
  const int a = plan.Add(256, 0, 1), b = plan.Add(256, 1, 2);  // both live at step 1
  plan.Place();
  EXPECT_NE(plan.offset(a), plan.offset(b));
  EXPECT_EQ(plan.bytes(), 512u);
}

TEST(ArenaPlan, FillsGaps) {
  ArenaPlan plan;
  plan.Add(4096, 0, 0);
  const int bridge = plan.Add(2048, 0, 9);
  const int small = plan.Add(1024, 5, 6);
  plan.Place();
  EXPECT_EQ(plan.offset(bridge), 4096u);
  EXPECT_EQ(plan.offset(small), 0u);  // where the first buffer was
}

TEST(ArenaPlan, NothingThatLivesTogetherOverlapsInRandomPlans) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    struct Buffer {
      size_t bytes;
      int first, last;
    };
    std::vector<Buffer> buffers;
    ArenaPlan plan;
    size_t sum = 0;
    for (int i = 0, count = 1 + static_cast<int>(random() % 12); i < count; ++i) {
      const int first = static_cast<int>(random() % 10);
      const Buffer buffer{1 + random() % 5000, first, first + static_cast<int>(random() % 5)};
      plan.Add(buffer.bytes, buffer.first, buffer.last);
      buffers.push_back(buffer);
      sum += (buffer.bytes + ArenaPlan::kAlignment - 1) / ArenaPlan::kAlignment *
             ArenaPlan::kAlignment;
    }
    plan.Place();
    EXPECT_LE(plan.bytes(), sum);
    for (size_t i = 0; i < buffers.size(); ++i) {
      const size_t at = plan.offset(static_cast<int>(i));
      EXPECT_EQ(at % ArenaPlan::kAlignment, 0u);
      EXPECT_LE(at + buffers[i].bytes, plan.bytes());
      for (size_t j = 0; j < i; ++j) {
        const bool together =
            buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
        const size_t other = plan.offset(static_cast<int>(j));
        const bool apart = at + buffers[i].bytes <= other || other + buffers[j].bytes <= at;
        ASSERT_TRUE(!together || apart) << "round " << round << ": " << i << " and " << j;
      }
    }
  }
}

}  // namespace
}  // namespace deepencoder::cuda
