#include "server/trace/span_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace deepencoder {
namespace {

std::vector<Span> Spans(int count, const std::string& name = "s") {
  std::vector<Span> spans(count);
  for (Span& span : spans) span.name = name;
  return spans;
}

TEST(SpanQueueTest, GivesBatchesInOrder) {
  SpanQueue queue(10);
  queue.Add(Spans(2, "a"));
  queue.Add(Spans(3, "b"));
  const std::vector<Span> first = queue.Take(4, absl::InfiniteDuration());
  ASSERT_EQ(first.size(), 4U);
  EXPECT_EQ(first[1].name, "a");
  EXPECT_EQ(first[2].name, "b");
  EXPECT_EQ(queue.Take(4, absl::ZeroDuration()).size(),
            1U);  // what is there once the delay is over
}

TEST(SpanQueueTest, FullItLetsWholeCallsGo) {
  SpanQueue queue(5);
  queue.Add(Spans(4));
  queue.Add(Spans(2));  // no room for both
  EXPECT_EQ(queue.dropped(), 2);
  queue.Add(Spans(1));
  EXPECT_EQ(queue.dropped(), 2);
  EXPECT_EQ(queue.Take(100, absl::ZeroDuration()).size(), 5U);
  queue.Add(Spans(5));
  EXPECT_EQ(queue.dropped(), 2);
}

TEST(SpanQueueTest, AWaitingTakeIsWokenByEnoughAndByTheEnd) {
  SpanQueue queue(100);
  std::vector<Span> first, second, third;
  std::thread taker([&] {
    first = queue.Take(4, absl::InfiniteDuration());
    second = queue.Take(4, absl::InfiniteDuration());
    third = queue.Take(4, absl::InfiniteDuration());
  });
  for (int i = 0; i < 5; ++i) queue.Add(Spans(1));
  queue.Close();
  taker.join();
  EXPECT_EQ(first.size() + second.size() + third.size(), 5U);
  EXPECT_EQ(first.size(), 4U);
  EXPECT_TRUE(third.empty());
}

TEST(SpanQueueTest, ClosedItTakesNothingIn) {
  SpanQueue queue(100);
  queue.Close();
  queue.Add(Spans(3));
  EXPECT_EQ(queue.dropped(), 3);
  EXPECT_TRUE(queue.Take(4, absl::InfiniteDuration()).empty());
}

}  // namespace
}  // namespace deepencoder
