// Replies through shared memory against replies through a unix socket, by the C++ client; and what the
// server's way of copying (pwrite, pread) costs against a mapping. shared_memory.py runs it.
//
//   shared_memory_bench ADDRESS IMAGE CALLS ROUNDS CONCURRENCY
//
// Sides alternate. A line a round: "call SIDE CONCURRENCY images/s p50_ms p99_ms" or
// "copy WAY us" for one reply of 273 x 1280 bf16.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"

namespace deepencoder::client {
namespace {

constexpr size_t kReplyBytes = size_t{273} * 1280 * 2;
constexpr uint64_t kShare = uint64_t{64} << 20;

EncodeOptions Base() {
  EncodeOptions options;
  options.mode = Mode::kBase;
  return options;
}

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// `calls` calls by so many threads, each waiting for its reply.
void MeasureCalls(Client& client, const char* side, const Image& image, int calls,
                  int concurrency) {
  std::vector<std::vector<double>> seconds(static_cast<size_t>(concurrency));
  std::vector<std::thread> threads;
  const auto start = std::chrono::steady_clock::now();
  for (auto& own : seconds) {
    threads.emplace_back([&client, &image, &own, calls, concurrency] {
      for (int i = 0; i < calls / concurrency; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        const auto rows = client.Encode(image, Base());
        if (!rows.ok()) Fail(rows.status());
        if (rows->data.size() != kReplyBytes) Fail(absl::InternalError("another reply"));
        own.push_back(SecondsSince(begin));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double elapsed = SecondsSince(start);
  std::vector<double> all;
  for (const auto& own : seconds) all.insert(all.end(), own.begin(), own.end());
  std::sort(all.begin(), all.end());
  std::printf("call %s %d %.1f %.4f %.4f\n", side, concurrency,
              static_cast<double>(all.size()) / elapsed, 1e3 * all[all.size() / 2],
              1e3 * all[all.size() * 99 / 100]);
}

// One reply's rows, out of fresh memory each time, into an object of this process.
void MeasureCopies(int count) {
  const int file = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  constexpr size_t kObject = size_t{64} << 20;
  if (file < 0 || posix_fallocate(file, 0, kObject) != 0) Fail(absl::InternalError("/dev/shm"));
  void* mapping = mmap(nullptr, kObject, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapping == MAP_FAILED) Fail(absl::InternalError("mmap"));
  auto* memory = static_cast<char*>(mapping);
  std::memset(memory, 1, kObject);  // its pages are there, as after the first replies
  std::vector<char> rows(kObject, 2);
  const auto offset = [](int i) { return static_cast<size_t>(i) * kReplyBytes % (kObject / 2); };
  const auto measure = [&](const char* way, const auto& copy) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) copy(offset(i));
    std::printf("copy %s %.2f\n", way, 1e6 * SecondsSince(start) / count);
  };
  measure("memcpy_to_mapping",
          [&](size_t at) { std::memcpy(memory + at, rows.data() + at, kReplyBytes); });
  measure("pwrite", [&](size_t at) {
    if (pwrite(file, rows.data() + at, kReplyBytes, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(kReplyBytes)) {
      Fail(absl::InternalError("pwrite"));
    }
  });
  measure("memcpy_from_mapping",
          [&](size_t at) { std::memcpy(rows.data() + at, memory + at, kReplyBytes); });
  measure("pread", [&](size_t at) {
    if (pread(file, rows.data() + at, kReplyBytes, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(kReplyBytes)) {
      Fail(absl::InternalError("pread"));
    }
  });
  munmap(mapping, kObject);
  close(file);
}

int Main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: shared_memory_bench ADDRESS IMAGE CALLS ROUNDS CONCURRENCY\n");
    return 2;
  }
  const auto image = ReadImageFile(argv[2]);
  if (!image.ok()) Fail(image.status());
  const int calls = std::atoi(argv[3]), rounds = std::atoi(argv[4]);
  const int concurrency = std::max(1, std::atoi(argv[5]));
  auto shared = *Client::Create(argv[1]);
  auto sent = *Client::Create(argv[1]);
  if (const absl::Status status = shared->ShareMemory(kShare); !status.ok()) Fail(status);
  for (Client* client : {shared.get(), sent.get()}) {  // connections, and the server's cache
    const auto rows = client->Encode(*image, Base());
    if (!rows.ok()) Fail(rows.status());
  }
  for (int round = 0; round < rounds; ++round) {
    for (const int width : {1, concurrency}) {
      MeasureCalls(*sent, "socket", *image, calls, width);
      MeasureCalls(*shared, "shared", *image, calls, width);
    }
    MeasureCopies(calls);
  }
  return 0;
}

}  // namespace
}  // namespace deepencoder::client

int main(int argc, char** argv) { return deepencoder::client::Main(argc, argv); }
