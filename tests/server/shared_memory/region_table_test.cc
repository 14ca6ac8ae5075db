#include "server/shared_memory/region_table.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/server/shared_memory/client_object.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;
using enum RegionTable::Scope;

class TestClock final : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(24 * 365);
};

class RegionTableTest : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 64 << 10;

  absl::Status Register(const std::string& name, const ClientObject& object, uint64_t size,
                        uint64_t offset = 0) {
    return table_.Register({.name = name, .key = object.key(), .offset = offset, .size = size});
  }
  int64_t regions() const { return table_.usage().regions; }
  int64_t bytes() const { return table_.usage().bytes; }

  TestClock clock_;
  RegionTable table_{{.regions = 4, .bytes = kBytes, .prefix = ClientObject::kPrefix}, &clock_};
};

TEST_F(RegionTableTest, ReadsAndWritesWithinTheRegion) {
  const ClientObject object(1000);
  object.Put(100, "image");
  ASSERT_TRUE(Register("mine", object, 500, 100).ok());
  const auto region = table_.Find(kNamed, "mine");
  ASSERT_TRUE(region.ok());
  const auto read = (*region)->Read(0, 5);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(read->bytes.data()), 5), "image");
  ASSERT_TRUE((*region)->Write(490, std::as_bytes(std::span("0123456789", 10))).ok());
  EXPECT_EQ(object.Get(590, 10), "0123456789");
  EXPECT_EQ(table_.usage().bytes_read, 5);
  EXPECT_EQ(table_.usage().bytes_written, 10);
}

TEST_F(RegionTableTest, RangesOutsideTheRegionAreRefused) {
  const ClientObject object(1000);
  object.Put(0, std::string(1000, 'x'));
  ASSERT_TRUE(Register("mine", object, 500, 100).ok());
  const auto region = *table_.Find(kNamed, "mine");
  constexpr uint64_t kMost = UINT64_MAX;
  const std::pair<uint64_t, uint64_t> ranges[] = {
      {0, 501},   {1, 500},       {500, 1},         {501, 0},   {0, 0},
      {kMost, 1}, {kMost, kMost}, {1, kMost},       {0, kMost}, {kMost - 99, 100},
      {400, 101}, {499, 2},       {1, kMost - 100}, {250, 251}, {uint64_t{1} << 63, 1}};
  for (const auto& [offset, size] : ranges) {
    EXPECT_EQ(region->CheckRange(offset, size).code(), absl::StatusCode::kInvalidArgument)
        << offset << ", " << size;
    EXPECT_EQ(region->Read(offset, size).status().code(), absl::StatusCode::kInvalidArgument);
  }
  const std::vector<std::byte> bytes(501);
  EXPECT_FALSE(region->Write(0, bytes).ok());
  EXPECT_FALSE(region->Write(kMost, std::span(bytes).first(1)).ok());
  EXPECT_EQ(object.Get(0, 1000), std::string(1000, 'x'));
  EXPECT_TRUE(region->Read(0, 500).ok());
  EXPECT_TRUE(region->Read(499, 1).ok());
}

TEST_F(RegionTableTest, TheLimitOfFileSizesIsAnErrorAndNoSignal) {
  const ClientObject object(1000);
  ASSERT_TRUE(Register("mine", object, 1000).ok());
  const auto region = *table_.Find(kNamed, "mine");
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit low{.rlim_cur = 500, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const absl::Status status = region->Write(600, std::as_bytes(std::span("rows", 4)));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(region->Write(600, std::as_bytes(std::span("rows", 4))).ok());
}

TEST_F(RegionTableTest, RefusesWhatCannotBeARegion) {
  const ClientObject object(1000);
  constexpr uint64_t kMost = UINT64_MAX;
  const std::pair<uint64_t, uint64_t> ranges[] = {
      {0, 0},     {0, 1001},      {1, 1000},          {1000, 1},  {kMost, 1},
      {1, kMost}, {kMost, kMost}, {kMost - 500, 501}, {0, kMost}, {kMost / 2, 1}};
  for (const auto& [offset, size] : ranges) {
    EXPECT_FALSE(Register("mine", object, size, offset).ok()) << offset << ", " << size;
  }
  EXPECT_EQ(Register("", object, 10).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Register(std::string(257, 'n'), object, 10).code(), absl::StatusCode::kInvalidArgument);
  for (const char* key : {"/../etc/passwd", "/somebody-elses", "", "/deepencoder-test/x"}) {
    EXPECT_EQ(table_.Register({.name = "n", .key = key, .size = 10}).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(table_.Register({.name = "n", .key = ClientObject::NewName(), .size = 10}).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(table_.RegisterHandle(object.key(), 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.RegisterHandle(object.key(), 1001).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(regions(), 0);
  EXPECT_EQ(bytes(), 0);
}

TEST_F(RegionTableTest, NamesAreUniqueAndHandlesAreSecret) {
  const ClientObject first(1000), second(1000), third(1000);
  ASSERT_TRUE(Register("mine", first, 1000).ok());
  EXPECT_EQ(Register("mine", first, 1000).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Register("mine", second, 1000).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Register("same object", first, 500).ok());

  const auto handle = table_.RegisterHandle(second.key(), 1000);
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(handle->size(), 32);
  EXPECT_FALSE(table_.Find(kNamed, *handle).ok());
  EXPECT_FALSE(table_.Find(kHandle, "mine").ok());
  EXPECT_TRUE(table_.Find(kHandle, *handle).ok());
  std::set<std::string> listed;
  for (const RegionSpec& spec : table_.ListNamed()) listed.insert(spec.name);
  EXPECT_EQ(listed, (std::set<std::string>{"mine", "same object"}));

  // Nobody else gets into an object that is held by a handle, and no handle into another's.
  EXPECT_EQ(Register("thief", second, 1000).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(table_.RegisterHandle(second.key(), 10).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(table_.RegisterHandle(first.key(), 10).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_NE(*table_.RegisterHandle(third.key(), 10), *handle);
}

TEST_F(RegionTableTest, AMemfdHasAHandleForAsLongAsItsClientLives) {
  const int before = OpenDescriptors();
  {
    ClientMemfd memfd(1000);
    const MemfdPlace place = {getpid(), memfd.fd()};
    EXPECT_EQ(table_.RegisterHandle(memfd.name(), 1001, place).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(table_.RegisterHandle(memfd.name(), kBytes + 1, place).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(table_.RegisterHandle("x" + memfd.name(), 1000, place).status().code(),
              absl::StatusCode::kInvalidArgument)
        << "another program's";
    const auto handle = table_.RegisterHandle(memfd.name(), 1000, place);
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_EQ(table_.RegisterHandle(memfd.name(), 1000, place).status().code(),
              absl::StatusCode::kAlreadyExists);
    table_.Sweep();
    EXPECT_EQ(regions(), 1);
    EXPECT_EQ(bytes(), 1000);
    memfd.Close();
    table_.Sweep();
    EXPECT_EQ(regions(), 0);
    EXPECT_EQ(table_.Find(kHandle, *handle).status().code(), absl::StatusCode::kNotFound);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(RegionTableTest, WhatIsMappedCanBeWrittenWhereItLies) {
  const ClientMemfd memfd(1000);
  const ClientObject named(1000);
  const auto handle = table_.RegisterHandle(memfd.name(), 900, MemfdPlace{getpid(), memfd.fd()});
  ASSERT_TRUE(handle.ok());
  ASSERT_TRUE(Register("named", named, 900).ok());
  const auto region = table_.Find(kHandle, *handle);
  ASSERT_TRUE(region.ok());
  const auto memory = (*region)->Memory(890, 10);
  ASSERT_TRUE(memory.ok());
  ASSERT_EQ(memory->size(), 10);
  std::memcpy(memory->data(), "0123456789", 10);
  EXPECT_EQ(memfd.Get(890, 10), "0123456789");
  EXPECT_EQ((*region)->Memory(891, 10).status().code(), absl::StatusCode::kInvalidArgument);
  const auto unmapped = (*table_.Find(kNamed, "named"))->Memory(890, 10);
  ASSERT_TRUE(unmapped.ok());
  EXPECT_TRUE(unmapped->empty());
}

// Nobody gets what a stuck call may still write, not even as a new region.
TEST_F(RegionTableTest, ARetiredRegionIsNotFoundAndKeepsItsObject) {
  const ClientMemfd memfd(1000);
  const MemfdPlace place = {getpid(), memfd.fd()};
  const auto handle = table_.RegisterHandle(memfd.name(), 1000, place);
  ASSERT_TRUE(handle.ok());
  std::shared_ptr<const Region> held = *table_.Find(kHandle, *handle);
  held->Retire();
  const absl::Status status = table_.Find(kHandle, *handle).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stuck"));
  table_.Sweep();
  table_.Unregister(kHandle, *handle);
  EXPECT_EQ(table_.RegisterHandle(memfd.name(), 1000, place).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(regions(), 1);
  held.reset();  // the call has returned
  table_.Sweep();
  EXPECT_EQ(regions(), 0);
  EXPECT_TRUE(table_.RegisterHandle(memfd.name(), 1000, place).ok());
}

TEST_F(RegionTableTest, AHandleNeedsALock) {
  const ClientObject object(1000, false);
  EXPECT_EQ(table_.RegisterHandle(object.key(), 1000).status().code(),
            absl::StatusCode::kFailedPrecondition);
  object.Lock();
  EXPECT_TRUE(table_.RegisterHandle(object.key(), 1000).ok());
}

TEST_F(RegionTableTest, RegionsAndBytesAreBounded) {
  const ClientObject object(1 << 20);
  EXPECT_EQ(Register("big", object, kBytes + 1).code(), absl::StatusCode::kResourceExhausted);
  for (const char* name : {"1", "2", "3", "4"}) ASSERT_TRUE(Register(name, object, 10'000).ok());
  absl::Status status = Register("5", object, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--shared-memory-regions"));
  table_.Unregister(kNamed, "4");
  status = Register("5", object, kBytes - 30'000 + 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--shared-memory-bytes"));
  EXPECT_TRUE(Register("5", object, kBytes - 30'000).ok());
  EXPECT_EQ(bytes(), kBytes);
  table_.UnregisterAllNamed();
  EXPECT_EQ(bytes(), 0);
  EXPECT_EQ(regions(), 0);
}

TEST_F(RegionTableTest, ARequestKeepsItsRegionAndTheRegionItsPlace) {
  const ClientObject object(kBytes);
  const int before = OpenDescriptors();
  ASSERT_TRUE(Register("mine", object, kBytes).ok());
  auto held = *table_.Find(kNamed, "mine");
  table_.Unregister(kNamed, "mine");
  object.Unlink();
  EXPECT_FALSE(table_.Find(kNamed, "mine").ok());
  EXPECT_TRUE(table_.ListNamed().empty());
  EXPECT_TRUE(held->Write(0, std::as_bytes(std::span("rows", 4))).ok());
  EXPECT_EQ(object.Get(0, 4), "rows");
  // Register, use, unregister, again and again, gets nobody over the bounds.
  const ClientObject other(kBytes);
  EXPECT_EQ(Register("mine", other, 1).code(), absl::StatusCode::kResourceExhausted);
  held.reset();
  EXPECT_TRUE(Register("mine", other, kBytes).ok());
  table_.UnregisterAllNamed();
  EXPECT_EQ(OpenDescriptors(), before + 1);  // `other`
  table_.Unregister(kNamed, "never there");
}

TEST_F(RegionTableTest, AClientThatEndedLeavesNothing) {
  const int before = OpenDescriptors();
  ClientObject dead(1000), alive(1000);
  const auto dead_handle = table_.RegisterHandle(dead.key(), 1000);
  const auto alive_handle = table_.RegisterHandle(alive.key(), 1000);
  ASSERT_TRUE(dead_handle.ok() && alive_handle.ok());
  table_.Sweep();
  EXPECT_EQ(regions(), 2);
  dead.Close();  // its lock with it; its name stays
  table_.Sweep();
  EXPECT_EQ(regions(), 1);
  EXPECT_EQ(table_.ended_with_client(), 1);
  EXPECT_FALSE(dead.has_name());
  EXPECT_TRUE(alive.has_name());
  EXPECT_EQ(table_.Find(kHandle, *dead_handle).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(table_.Find(kHandle, *alive_handle).ok());
  alive.Close();
  table_.Sweep();
  EXPECT_EQ(bytes(), 0);
  EXPECT_EQ(OpenDescriptors(), before);
}

// Dead clients' regions make room for new ones without waiting for the next sweep.
TEST_F(RegionTableTest, AFullTableIsSweptBeforeItRefuses) {
  ClientObject dead(kBytes);
  const ClientObject next(kBytes);
  ASSERT_TRUE(table_.RegisterHandle(dead.key(), kBytes).ok());
  EXPECT_EQ(table_.RegisterHandle(next.key(), 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  dead.Close();
  EXPECT_TRUE(table_.RegisterHandle(next.key(), kBytes).ok());
}

TEST_F(RegionTableTest, RegionsThatNobodyUsesEnd) {
  const ClientObject object(1000, false), locked(1000);
  ASSERT_TRUE(Register("named", object, 1000).ok());
  const auto handle = table_.RegisterHandle(locked.key(), 1000);
  ASSERT_TRUE(handle.ok());
  clock_.Advance(absl::Minutes(9));
  ASSERT_TRUE(table_.Find(kNamed, "named").ok());
  clock_.Advance(absl::Minutes(9));
  table_.Sweep();
  EXPECT_TRUE(table_.Find(kNamed, "named").ok());
  EXPECT_EQ(table_.Find(kHandle, *handle).status().code(), absl::StatusCode::kNotFound);
  const auto held = *table_.Find(kNamed, "named");
  clock_.Advance(absl::Hours(1));
  table_.Sweep();
  EXPECT_TRUE(table_.Find(kNamed, "named").ok()) << "a request was using it";
  EXPECT_EQ(table_.ended_idle(), 1);
  EXPECT_TRUE(object.has_name() && locked.has_name()) << "their clients still have them";
}

TEST_F(RegionTableTest, ManyThreadsRegisterUseAndUnregister) {
  const ClientObject object(kBytes);
  const int before = OpenDescriptors();
  std::vector<std::thread> threads;
  std::atomic<int> used{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "region " + std::to_string(t % 2);
      for (int i = 0; i < 2000; ++i) {
        (void)Register(name, object, 1000);
        if (const auto region = table_.Find(kNamed, name); region.ok()) {
          EXPECT_TRUE((*region)->Read(0, 1000).ok());
          ++used;
        }
        table_.Sweep();
        table_.Unregister(kNamed, name);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(used, 0);
  EXPECT_EQ(regions(), 0);
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace deepencoder
