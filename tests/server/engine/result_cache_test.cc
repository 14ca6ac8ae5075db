#include "server/engine/result_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/server/engine/fakes.h"

namespace deepencoder {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Role = ResultCache::Role;

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

std::shared_ptr<Request> RequestOf(int tag, absl::Time deadline = absl::InfiniteFuture()) {
  EncodeJob job = RawJob(tag);
  job.deadline = deadline;
  auto request = std::make_shared<Request>(
      std::move(job), [](const absl::StatusOr<EncodeResult>&) {}, kNow);
  request->key = KeyOf(request->job, 1);
  return request;
}

EncodeResult ResultOf(int rows, size_t bytes) {
  EncodeResult result;
  result.rows = rows;
  result.bytes = bytes;
  return result;
}

class ResultCacheTest : public ::testing::Test {
 protected:
  CountingObserver observer_;
  ResultCache cache_{10'000, &observer_};
  EncodeResult found_;

  // As a leader: encoded and published.
  void Put(int tag, size_t bytes) {
    const auto request = RequestOf(tag);
    ASSERT_EQ(cache_.Join(request, &found_), Role::kLead);
    cache_.Publish(*request->key, ResultOf(tag, bytes));
  }
  bool Has(int tag) {
    const auto request = RequestOf(tag);
    if (cache_.Join(request, &found_) == Role::kHit) return found_.rows == tag;
    cache_.Abandon(*request->key);
    return false;
  }
};

TEST_F(ResultCacheTest, GivesBackWhatWasPublished) {
  Put(7, 1000);
  EXPECT_TRUE(Has(7));
  EXPECT_FALSE(Has(8));
  EXPECT_EQ(observer_.hits, 1);
  EXPECT_EQ(observer_.misses, 2);
  EXPECT_EQ(observer_.cache_entries, 1);
}

TEST_F(ResultCacheTest, KeepsItsBoundByForgettingTheLeastRecentlyUsed) {
  Put(1, 4000);
  Put(2, 4000);
  EXPECT_TRUE(Has(1));
  Put(3, 4000);
  EXPECT_LE(observer_.cache_bytes, 10'000);
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(2));
  EXPECT_TRUE(Has(3));
}

TEST_F(ResultCacheTest, AResultLargerThanTheCacheIsNotKeptAndNothingMakesWayForIt) {
  Put(1, 4000);
  Put(2, 20'000);
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(2));
}

TEST_F(ResultCacheTest, TellsItsSizeWheneverItChanges) {
  constexpr int64_t kBytes = 4000, kMost = 10'000;
  Put(1, kBytes);
  EXPECT_EQ(observer_.cache_entries, 1);
  EXPECT_GE(observer_.cache_bytes, kBytes);
  Put(2, kBytes);
  EXPECT_EQ(observer_.cache_entries, 2);
  EXPECT_GE(observer_.cache_bytes, 2 * kBytes);
  Put(3, kBytes);  // 1 makes way
  EXPECT_EQ(observer_.cache_entries, 2);
  EXPECT_LE(observer_.cache_bytes, kMost);
  cache_.Clear();
  EXPECT_EQ(observer_.cache_entries, 0);
  EXPECT_EQ(observer_.cache_bytes, 0);
}

TEST_F(ResultCacheTest, FollowersComeBackWithTheResult) {
  const auto leader = RequestOf(1), first = RequestOf(1), second = RequestOf(1);
  EXPECT_EQ(cache_.Join(leader, &found_), Role::kLead);
  EXPECT_EQ(cache_.Join(first, &found_), Role::kFollow);
  EXPECT_EQ(cache_.Join(second, &found_), Role::kFollow);
  EXPECT_TRUE(leader->leads);
  EXPECT_FALSE(first->leads);
  EXPECT_THAT(cache_.Publish(*leader->key, ResultOf(1, 100)), ElementsAre(first, second));
  EXPECT_EQ(observer_.hits, 2);
  EXPECT_TRUE(Has(1));
}

TEST_F(ResultCacheTest, AFailureThatAllShareEndsTheFlight) {
  const auto leader = RequestOf(1), follower = RequestOf(1);
  cache_.Join(leader, &found_);
  cache_.Join(follower, &found_);
  EXPECT_THAT(cache_.Abandon(*leader->key), ElementsAre(follower));
  EXPECT_EQ(cache_.Join(RequestOf(1), &found_), Role::kLead);
}

TEST_F(ResultCacheTest, AFollowerTakesOverFromALeaderThatFailedAlone) {
  const auto leader = RequestOf(1), late = RequestOf(1, kNow), next = RequestOf(1),
             last = RequestOf(1);
  for (const auto& request : {leader, late, next, last}) cache_.Join(request, &found_);
  std::vector<std::shared_ptr<Request>> gone;
  EXPECT_EQ(cache_.PassOn(*leader->key, kNow, &gone), next);
  EXPECT_THAT(gone, ElementsAre(late));
  EXPECT_TRUE(next->leads);
  EXPECT_THAT(cache_.Publish(*next->key, ResultOf(1, 100)), ElementsAre(last));
}

TEST_F(ResultCacheTest, AFlightWithoutFollowersEndsWithItsLeader) {
  const auto leader = RequestOf(1);
  cache_.Join(leader, &found_);
  std::vector<std::shared_ptr<Request>> gone;
  EXPECT_EQ(cache_.PassOn(*leader->key, kNow, &gone), nullptr);
  EXPECT_THAT(gone, IsEmpty());
  EXPECT_EQ(cache_.Join(RequestOf(1), &found_), Role::kLead);
}

TEST_F(ResultCacheTest, ClearForgetsResultsAndKeepsFlights) {
  Put(1, 100);
  const auto leader = RequestOf(2), follower = RequestOf(2);
  cache_.Join(leader, &found_);
  cache_.Join(follower, &found_);
  cache_.Clear();
  EXPECT_FALSE(Has(1));
  EXPECT_THAT(cache_.Publish(*leader->key, ResultOf(2, 100)), ElementsAre(follower));
}

TEST(ContentKeyTest, TellsApartWhatChangesTheResult) {
  const EncodeJob base = RawJob(1);
  const auto key = KeyOf(base, 1);
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(KeyOf(RawJob(1), 1), key);
  EXPECT_NE(KeyOf(RawJob(2), 1), key);
  EXPECT_NE(KeyOf(base, 2), key);
  EXPECT_NE(KeyOf(RawJob(1, Mode::kTiny, 4, 1), 1), key);  // the same bytes in another shape
  EncodeJob job = base;
  job.dtype = DType::kFp32;
  EXPECT_NE(KeyOf(job, 1), key);
  job = base;
  job.mode = Mode::kBase;
  EXPECT_NE(KeyOf(job, 1), key);
  // The pixels of a raw image, taken for a file.
  job = base;
  job.image = EncodedFile{std::get<RawPixels>(base.image).rgb};
  const auto file = KeyOf(job, 1);
  EXPECT_NE(file, key);
  job.alpha = AlphaPolicy::kWhite;
  EXPECT_NE(KeyOf(job, 1), file);
  job.alpha = AlphaPolicy::kDrop;
  job.gray16 = Gray16Policy::kSaturate;
  EXPECT_NE(KeyOf(job, 1), file);
}

TEST(ContentKeyTest, IgnoresWhatDoesNot) {
  EncodeJob tiny = RawJob(1);
  const auto key = KeyOf(tiny, 1);
  tiny.max_tiles = 9;                // tiny has no tiles
  tiny.alpha = AlphaPolicy::kWhite;  // pixels have no alpha
  tiny.request_id = "another";
  tiny.deadline = kNow;
  EXPECT_EQ(KeyOf(tiny, 1), key);
  EncodeJob gundam = RawJob(1, Mode::kGundam);
  const auto six = KeyOf(gundam, 1);
  gundam.max_tiles = 9;
  EXPECT_NE(KeyOf(gundam, 1), six);
}

}  // namespace
}  // namespace deepencoder
