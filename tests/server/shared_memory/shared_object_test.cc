#include "server/shared_memory/shared_object.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <thread>
#include <vector>

#include "tests/server/shared_memory/client_object.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Of a client's 100 bytes.
void ExpectReadsAndWrites(const absl::StatusOr<SharedObject>& object, const ClientFile& client) {
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(*object->Size(), 100);
  client.Put(10, "from the client");
  std::string bytes(15, '\0');
  ASSERT_TRUE(object->Read(10, std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(bytes, "from the client");
  ASSERT_TRUE(object->Write(90, std::as_bytes(std::span("0123456789", 10))).ok());
  EXPECT_EQ(client.Get(90, 10), "0123456789");
  EXPECT_EQ(client.size(), 100);
}

TEST(SharedObjectTest, ReadsAndWritesTheClientsBytes) {
  const ClientObject client(100);
  ExpectReadsAndWrites(SharedObject::Open(client.name()), client);
}

TEST(SharedObjectTest, FollowsNoLinksAndOpensOnlyFiles) {
  const ClientObject target(100);
  const int before = OpenDescriptors();
  const std::string name = ClientObject::NewName(), path = "/dev/shm/" + name;

  EXPECT_EQ(SharedObject::Open(name).status().code(), absl::StatusCode::kNotFound);

  ASSERT_EQ(symlink(target.path().c_str(), path.c_str()), 0);
  EXPECT_EQ(SharedObject::Open(name).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(symlink("/etc/passwd", path.c_str()), 0);
  EXPECT_THAT(Text(SharedObject::Open(name).status()), HasSubstr("symbolic link"));
  ASSERT_EQ(unlink(path.c_str()), 0);

  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  EXPECT_EQ(SharedObject::Open(name).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(rmdir(path.c_str()), 0);

  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);  // opening one the usual way would wait for a writer
  EXPECT_EQ(SharedObject::Open(name).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(unlink(path.c_str()), 0);

  ASSERT_EQ(link(target.path().c_str(), path.c_str()), 0);  // another name for another's file
  EXPECT_EQ(SharedObject::Open(name).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(SharedObject::Open(target.name()).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_TRUE(SharedObject::Open(target.name()).ok());
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(SharedObjectTest, ReadsAndWritesAMemfd) {
  const ClientMemfd client(100);
  const int before = OpenDescriptors();
  {
    const auto object = SharedObject::OpenMemfd(client.name(), {getpid(), client.fd()}, 100);
    ExpectReadsAndWrites(object, client);
    ASSERT_TRUE(object.ok());
    std::string bytes(15, '\0');
    EXPECT_EQ(object->Write(91, std::as_bytes(std::span("0123456789", 10))).code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(object->Read(UINT64_MAX, std::as_writable_bytes(std::span(bytes))).code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(ftruncate(client.fd(), 50), 0) << "its owner cannot cut it";
    EXPECT_TRUE(object->IsLockedByOther());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

// Nothing but the memfd of that name, and nobody learns what else there is.
TEST(SharedObjectTest, OpensNoOtherDescriptorOfAnyProcess) {
  const ClientMemfd client(100), other(100);
  const ClientObject file(100);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int named = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  const int before = OpenDescriptors();
  const std::string& name = client.name();
  for (const MemfdPlace& place :
       {MemfdPlace{getpid(), other.fd()}, MemfdPlace{getpid(), ends[0]},
        MemfdPlace{getpid(), named}, MemfdPlace{getpid(), 4000}, MemfdPlace{getpid(), -1},
        MemfdPlace{1, client.fd()}, MemfdPlace{0, 0}, MemfdPlace{-1, 5}, MemfdPlace{INT_MAX, 1}}) {
    const absl::Status status = SharedObject::OpenMemfd(name, place, 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(Text(status), HasSubstr("has no memfd " + name));
  }
  EXPECT_EQ(SharedObject::OpenMemfd(file.name(), {getpid(), named}, 100).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenDescriptors(), before);
  for (const int fd : {ends[0], ends[1], named}) close(fd);
}

TEST(SharedObjectTest, AMemfdThatCouldKillTheServerIsRefused) {
  const ClientMemfd loose(100, 0), grown(100, F_SEAL_GROW);
  for (const ClientMemfd* client : {&loose, &grown}) {
    const absl::Status status =
        SharedObject::OpenMemfd(client->name(), {getpid(), client->fd()}, 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Text(status), HasSubstr("F_SEAL_SHRINK"));
  }
  const ClientMemfd small(100);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{101}, UINT64_MAX}) {
    EXPECT_EQ(SharedObject::OpenMemfd(small.name(), {getpid(), small.fd()}, bytes).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  // Of huge pages there may be none when they are touched, which is a signal, too.
  const ClientMemfd huge(0, F_SEAL_SHRINK, MFD_HUGETLB);
  const absl::Status status =
      SharedObject::OpenMemfd(huge.name(), {getpid(), huge.fd()}, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr("MFD_HUGETLB"));
}

// A server that may open everything still opens only what is its user's.
TEST(SharedObjectTest, OpensNoOtherUsersFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const ClientObject client(100);
  ASSERT_EQ(chown(client.path().c_str(), 65534, 65534), 0);
  const auto object = SharedObject::Open(client.name());
  EXPECT_EQ(object.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Text(object.status()), HasSubstr("belongs to user 65534"));
}

TEST(SharedObjectTest, AFileThatWasCutIsAnErrorAndNoSignal) {
  const ClientObject client(3 * 4096);
  auto object = SharedObject::Open(client.name());
  ASSERT_TRUE(object.ok());
  client.Resize(5000);
  std::vector<std::byte> bytes(3 * 4096);
  absl::Status status = object->Read(0, bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr("ends at byte 5000"));
  status = object->Write(0, bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client.size(), 5000) << "a refused write has made the file longer";
  EXPECT_TRUE(object->Read(0, std::span(bytes).first(5000)).ok());
  client.Resize(0);
  EXPECT_FALSE(object->Read(0, std::span(bytes).first(1)).ok());
}

// The client cuts and grows the file all the while.
TEST(SharedObjectTest, OutlivesAClientThatCutsTheFileUnderIt) {
  const ClientObject client(1 << 20);
  auto object = SharedObject::Open(client.name());
  ASSERT_TRUE(object.ok());
  std::atomic<bool> stop{false};
  std::thread cutter([&] {
    while (!stop) {
      client.Resize(0);
      client.Resize(1 << 20);
    }
  });
  std::vector<std::byte> bytes(1 << 20);
  int failed = 0;
  for (int i = 0; i < 2000 || (failed == 0 && i < 200'000); ++i) {
    const absl::Status read = object->Read(0, bytes), written = object->Write(0, bytes);
    for (const absl::Status& status : {read, written}) {
      if (status.ok()) continue;
      ++failed;
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    }
  }
  stop = true;
  cutter.join();
  EXPECT_GT(failed, 0) << "the file was never short when it was looked at";
  EXPECT_LE(client.size(), 1 << 20);
}

TEST(SharedObjectTest, SeesTheLockAndRemovesOnlyItsOwnName) {
  ClientObject client(100, false);
  auto object = SharedObject::Open(client.name());
  ASSERT_TRUE(object.ok());
  EXPECT_FALSE(object->IsLockedByOther());
  client.Lock();
  EXPECT_TRUE(object->IsLockedByOther());
  EXPECT_TRUE(object->IsLockedByOther());
  client.Close();
  EXPECT_FALSE(object->IsLockedByOther());

  client.Unlink();
  ASSERT_EQ(mkdir(client.path().c_str(), 0700), 0);  // something else by that name
  object->Unlink();
  EXPECT_TRUE(client.has_name());
  ASSERT_EQ(rmdir(client.path().c_str()), 0);
}

}  // namespace
}  // namespace deepencoder
