// The client library's shared memory against the real RPC layer over a PuppetEngine.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "client/client.h"
#include "client/shared_pool.h"
#include "client/sharing.h"
#include "tests/server/rpc/rpc_fixture.h"
#include "tests/server/shared_memory/client_object.h"

namespace deepencoder::client {
namespace {

using testing::HasSubstr;

constexpr auto kMemfd = SharedPool::Kind::kMemfd;
constexpr auto kNamed = SharedPool::Kind::kNamed;
constexpr uint64_t kShare = 4 << 20;
constexpr uint64_t kRowBytes = uint64_t{73} * 1280 * 2;  // of a reply in mode tiny

Image SmallImage(const std::string& bytes = "file") {
  Image image;
  image.encoded = bytes;
  return image;
}

EncodeOptions Tiny() {
  EncodeOptions options;
  options.mode = Mode::kTiny;
  return options;
}

ClientOptions Impatient() {
  ClientOptions options;
  options.retry.max_attempts = 200;  // until the server that comes back is there
  options.retry.first_delay = absl::Milliseconds(1);
  options.retry.max_delay = absl::Milliseconds(100);
  return options;
}

std::string FileOf(const EncodeJob& job) {
  const auto& bytes = std::get<EncodedFile>(job.image).file.bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool HasName(const std::string& name) { return access(("/dev/shm/" + name).c_str(), F_OK) == 0; }

// Memory of clients that this process, which is the server's too, has open: the kernel's text for each.
std::vector<std::string> OpenObjects() {
  std::vector<std::string> objects;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string path = std::filesystem::read_symlink(entry.path(), gone);
    if (path.starts_with("/dev/shm/deepencoder-client-") ||
        path.starts_with("/memfd:deepencoder-client-")) {
      objects.push_back(path);
    }
  }
  return objects;
}

TEST(SharedPoolTest, GivesOutBlocksThatDoNotTouch) {
  for (const auto kind : {kMemfd, kNamed}) {
    auto pool = *SharedPool::Create(1024, kind);
    std::vector<SharedPool::Block> blocks;
    while (auto block = pool->Take(100)) blocks.push_back(*std::move(block));
    EXPECT_EQ(blocks.size(), 8);  // of 128 bytes
    std::set<uint64_t> offsets;
    for (const SharedPool::Block& block : blocks) {
      EXPECT_EQ(block.offset() % 64, 0);
      EXPECT_TRUE(offsets.insert(block.offset()).second);
    }
    // What comes back in any order becomes one piece again.
    for (const size_t index : {3, 1, 2, 7, 0, 5, 6, 4}) {
      SharedPool::Block gone = std::move(blocks[index]);
    }
    EXPECT_TRUE(pool->Take(1024).has_value());
    EXPECT_FALSE(pool->Take(1025).has_value());
    EXPECT_FALSE(pool->Take(UINT64_MAX).has_value());
    EXPECT_FALSE(SharedPool::Create(0, kind).ok());
    EXPECT_FALSE(SharedPool::Create(uint64_t{1} << 50, kind).ok()) << "there is no room for it";
  }
}

TEST(SharedPoolTest, ABlockKeepsAPartOfItself) {
  auto pool = *SharedPool::Create(1024, kNamed);
  auto block = pool->Take(1024);
  char* const data = block->data();
  block->Keep(256, 100);
  EXPECT_EQ(block->data(), data + 256);
  EXPECT_EQ(block->offset(), 256);
  EXPECT_EQ(block->size(), 128);
  EXPECT_TRUE(pool->Take(1024 - 256 - 128).has_value());
  EXPECT_TRUE(pool->Take(256).has_value());
  block.reset();
  EXPECT_TRUE(pool->Take(1024).has_value());
}

TEST(SharedPoolTest, AbandonedBlocksAreNotGivenOutAgain) {
  auto pool = *SharedPool::Create(1024, kNamed);
  {
    auto block = pool->Take(512);
    block->Abandon();
  }
  EXPECT_TRUE(pool->worn());
  EXPECT_TRUE(pool->Take(512).has_value());
  EXPECT_FALSE(pool->Take(513).has_value());
}

TEST(SharedPoolTest, HasANameOnlyUntilUnlinkAndRemovesThoseOfTheDead) {
  auto pool = *SharedPool::Create(4096, kNamed);
  EXPECT_TRUE(HasName(pool->name()));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    // Killed with an object that has its name.
    const auto made = *SharedPool::Create(4096, kNamed);
    (void)!write(ends[1], made->name().data(), made->name().size());
    kill(getpid(), SIGKILL);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  std::string dead(256, '\0');
  dead.resize(static_cast<size_t>(std::max<ssize_t>(0, read(ends[0], dead.data(), dead.size()))));
  close(ends[0]);
  close(ends[1]);
  ASSERT_TRUE(dead.starts_with("deepencoder-client-"));
  auto other = *SharedPool::Create(4096, kNamed);  // removes it, and not the living
  EXPECT_FALSE(HasName(dead));
  EXPECT_TRUE(HasName(pool->name()));
  const std::string name = other->name();
  EXPECT_TRUE(HasName(name));
  pool->Unlink();
  EXPECT_FALSE(HasName(pool->name()));
  other.reset();
  EXPECT_FALSE(HasName(name));
}

class ShareMemoryTest : public testing::Test {
 protected:
  ShareMemoryTest() : server_(MakeServer()) { Serve(*server_); }

  static std::unique_ptr<RpcServer> MakeServer(bool share = true) {
    const std::string address =
        "unix:" + testing::TempDir() + "share_memory_test." + std::to_string(getpid()) + ".sock";
    return std::make_unique<RpcServer>(4, address, nullptr, share);
  }
  static void Serve(RpcServer& server, bool share = true) {
    Serving serving{server.engine, DescribeModes(server.Context(4, share).rules, 1000)};
    serving.info.mutable_limits()->set_max_image_bytes(1 << 20);
    server.service.SetServing(std::make_shared<const Serving>(std::move(serving)));
    server.engine->Play(
        [](const EncodeJob& job) { return FilledResult(job, {}, FileOf(job).back()); });
  }
  std::unique_ptr<Client> Sharer(uint64_t bytes = kShare) {
    auto client = *Client::Create(server_->address(), Impatient());
    const absl::Status status = client->ShareMemory(bytes);
    EXPECT_TRUE(status.ok()) << status;
    return client;
  }
  int64_t written() const { return server_->regions.usage().bytes_written; }
  int64_t regions() const { return server_->regions.usage().regions; }

  std::unique_ptr<RpcServer> server_;
};

TEST_F(ShareMemoryTest, SameRowsThroughMemoryAndThroughTheSocket) {
  auto client = Sharer();
  EXPECT_EQ(OpenObjects().size(), 2) << "the client's descriptor and the server's";
  EXPECT_THAT(OpenObjects(), testing::Each(testing::StartsWith("/memfd:")));
  auto plain = *Client::Create(server_->address());
  for (const DType dtype : {DType::kBf16, DType::kFp32}) {
    EncodeOptions options = Tiny();
    options.dtype = dtype;
    const auto shared = client->Encode(SmallImage("file Z"), options);
    const auto sent = plain->Encode(SmallImage("file Z"), options);
    ASSERT_TRUE(shared.ok() && sent.ok()) << shared.status() << sent.status();
    EXPECT_EQ(shared->data, sent->data);
    EXPECT_EQ(shared->data[0], 'Z');
    EXPECT_EQ(shared->rows, 73);
  }
  EXPECT_EQ(written(), 3 * kRowBytes);
  EXPECT_EQ(server_->regions.usage().bytes_read, 2 * 6);
  client.reset();
  // A call of the server's ends just after its reply.
  EXPECT_TRUE(Eventually([&] { return regions() == 0; }));
  EXPECT_TRUE(Eventually([&] { return OpenObjects().empty(); }));  // closed once nobody counts it
}

// Does not see the client's process.
class ServerElsewhere final : public v1::SharedMemory::Service {
 public:
  grpc::Status RegisterRegion(grpc::ServerContext* /*context*/,
                              const v1::RegisterRegionRequest* request,
                              v1::RegisterRegionResponse* response) override {
    requests.push_back(*request);
    named.push_back(HasName(request->key().substr(1)));
    if (request->has_memfd()) return {grpc::StatusCode::NOT_FOUND, "no such memfd"};
    response->set_handle("handle");
    return grpc::Status::OK;
  }
  std::vector<v1::RegisterRegionRequest> requests;
  std::vector<bool> named;
};

TEST(SharingTest, ANamedObjectWhereTheServerDoesNotSeeTheProcess) {
  ServerElsewhere service;
  const std::string address =
      "unix:" + testing::TempDir() + "sharing_test." + std::to_string(getpid()) + ".sock";
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  {
    const auto sharing = Sharing::Start(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()), {}, kShare,
        absl::Now() + absl::Minutes(1), [] {}, [] {});
    EXPECT_TRUE(sharing.ok()) << sharing.status();
  }
  ASSERT_EQ(service.requests.size(), 2);
  EXPECT_EQ(service.requests[0].memfd().pid(), getpid());
  EXPECT_FALSE(service.requests[1].has_memfd());
  EXPECT_EQ(service.requests[1].size(), kShare);
  EXPECT_TRUE(service.requests[1].key().starts_with("/deepencoder-client-"));
  EXPECT_EQ(service.named, (std::vector<bool>{false, true}));
  EXPECT_FALSE(HasName(service.requests[1].key().substr(1))) << "it is not needed any more";
}

TEST_F(ShareMemoryTest, PixelsAndTheLargestReplyHaveRoom) {
  auto client = Sharer();
  Image image;
  image.width = 1;
  image.height = 2;
  image.rgb = "rgbrgb";
  EncodeOptions options;
  options.mode = Mode::kGundam;
  for (const TileGrid tiles : {TileGrid{9, 1}, TileGrid{1, 9}}) {  // the latter has the most rows
    server_->engine->Play([tiles](const EncodeJob& job) { return FilledResult(job, tiles, 'g'); });
    const auto rows = client->Encode(image, options);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(rows->rows, 273 + 10 * tiles.rows * (10 * tiles.columns + 1));
  }
  EXPECT_EQ(written(), (273 + 910 + 273 + 990) * 2560);
}

TEST_F(ShareMemoryTest, WithoutRoomImagesGoThroughTheSocket) {
  auto client = Sharer(kRowBytes + 4096);  // for one call
  std::atomic<int> calls{0};
  server_->engine->Play(nullptr);
  std::vector<std::future<absl::StatusOr<Embeddings>>> answers;
  for (int i = 0; i < 4; ++i) answers.push_back(client->EncodeFuture(SmallImage("abc"), Tiny()));
  for (int i = 0; i < 4; ++i) {
    PuppetEngine::Held held = server_->engine->Take();
    EXPECT_EQ(FileOf(held.job), "abc");
    held.done(FilledResult(held.job, {}, 'w'));
  }
  for (auto& answer : answers) {
    const auto rows = answer.get();
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(rows->data, std::string(kRowBytes, 'w'));
  }
  EXPECT_EQ(written(), kRowBytes);
}

// Rows that a caller keeps are not overwritten, and the next ones go elsewhere.
TEST_F(ShareMemoryTest, RowsStayForAsLongAsTheyAreKept) {
  auto client = Sharer(kRowBytes + 4096);  // for one reply
  auto kept = client->Encode(SmallImage("k"), Tiny());
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(kept->data.data()) % 64, 0);
  EXPECT_TRUE(client->Encode(SmallImage("s"), Tiny()).ok());
  EXPECT_EQ(written(), kRowBytes) << "through the socket";
  Embeddings copy = *kept;
  kept = absl::UnknownError("");
  EXPECT_TRUE(client->Encode(SmallImage("s"), Tiny()).ok());
  EXPECT_EQ(written(), kRowBytes) << "the copy keeps them, too";
  EXPECT_EQ(copy.data, std::string(kRowBytes, 'k'));
  copy = Embeddings();
  EXPECT_TRUE(client->Encode(SmallImage("s"), Tiny()).ok());
  EXPECT_EQ(written(), 2 * kRowBytes);
  kept = client->Encode(SmallImage("k"), Tiny());
  client.reset();
  EXPECT_EQ(kept->data, std::string(kRowBytes, 'k')) << "after the client";
}

TEST_F(ShareMemoryTest, ManyImagesOverAStream) {
  auto client = Sharer(3 * (kRowBytes + 4096));
  size_t next = 0;
  std::vector<std::string> data(40);
  const absl::Status status = client->EncodeMany(
      [&]() -> std::optional<Image> {
        if (next == data.size()) return std::nullopt;
        return SmallImage(std::string(1, static_cast<char>('!' + next++)));
      },
      Tiny(), 8,
      [&](ManyResult result) {
        ASSERT_TRUE(result.embeddings.ok()) << result.embeddings.status();
        data[result.index] = result.embeddings->data;
      });
  EXPECT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data[i], std::string(kRowBytes, static_cast<char>('!' + i))) << i;
  }
  EXPECT_GE(written(), 3 * kRowBytes);
}

// The server has forgotten the region: nobody notices, and there is another soon.
TEST_F(ShareMemoryTest, AForgottenRegionIsReplaced) {
  auto client = Sharer();
  ASSERT_TRUE(client->Encode(SmallImage(), Tiny()).ok());
  server_ = nullptr;
  server_ = MakeServer();
  Serve(*server_);
  const auto rows = client->Encode(SmallImage("after"), Tiny());
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->data, std::string(kRowBytes, 'r'));
  EXPECT_EQ(written(), 0);
  EXPECT_TRUE(Eventually([&] { return regions() == 1; }));
  EXPECT_TRUE(Eventually(
      [&] { return client->Encode(SmallImage("after"), Tiny()).ok() && written() > 0; }));
  // In a stream too.
  server_ = nullptr;
  server_ = MakeServer();
  Serve(*server_);
  int next = 0, good = 0;
  const absl::Status status = client->EncodeMany(
      [&]() -> std::optional<Image> {
        if (next++ == 6) return std::nullopt;
        return SmallImage();
      },
      Tiny(), 2, [&](const ManyResult& result) { good += result.embeddings.ok() ? 1 : 0; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(good, 6);
}

TEST_F(ShareMemoryTest, AServerThatStopsSharingGetsImagesThroughTheSocket) {
  auto client = Sharer();
  server_ = nullptr;
  server_ = MakeServer(false);
  Serve(*server_, false);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(client->Encode(SmallImage(), Tiny()).ok());
  const absl::Status status = client->ShareMemory(kShare);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--shared-memory"));
}

TEST_F(ShareMemoryTest, LimitsOfTheServerAreErrors) {
  auto client = *Client::Create(server_->address(), Impatient());
  EXPECT_EQ(client->ShareMemory(uint64_t{65} << 20).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(client->Encode(SmallImage(), Tiny()).ok());
  EXPECT_EQ(written(), 0);
}

// The client gives up; the server, later, does not write where another call's rows may lie.
TEST_F(ShareMemoryTest, MemoryOfACallThatWasGivenUpIsNotUsedAgain) {
  auto client = Sharer(kRowBytes + 4096);  // for one call
  server_->engine->Play(nullptr);
  EncodeOptions options = Tiny();
  options.timeout = absl::Seconds(10);  // it must get to the server
  auto given_up = client->EncodeFuture(SmallImage(), options);
  PuppetEngine::Held late = server_->engine->Take();
  EXPECT_EQ(given_up.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  server_->engine->Play(
      [](const EncodeJob& job) { return FilledResult(job, {}, FileOf(job).back()); });
  EXPECT_TRUE(client->Encode(SmallImage("x"), Tiny()).ok());  // no room: makes a new region
  EXPECT_EQ(written(), 0);
  EXPECT_TRUE(
      Eventually([&] { return client->Encode(SmallImage("x"), Tiny()).ok() && written() > 0; }));
  late.done(FilledResult(late.job, {}, 'L'));
  const auto rows = client->Encode(SmallImage("y"), Tiny());
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->data, std::string(kRowBytes, 'y'));
}

TEST_F(ShareMemoryTest, ManyThreadsShare) {
  auto client = Sharer();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const char mark = static_cast<char>('a' + t);
      for (int i = 0; i < 50; ++i) {
        const auto rows = client->Encode(SmallImage(std::string(1000, mark)), Tiny());
        ASSERT_TRUE(rows.ok()) << rows.status();
        ASSERT_EQ(rows->data, std::string(kRowBytes, mark));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(written(), 0);
}

}  // namespace
}  // namespace deepencoder::client
