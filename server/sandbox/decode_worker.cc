#include "server/sandbox/decode_worker.h"

#include <opencv2/core/core_c.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <opencv2/core.hpp>
#include <string>
#include <string_view>

#include "server/heap.h"
#include "server/sandbox/confinement.h"
#include "server/sandbox/protocol.h"

namespace deepencoder {
namespace {

constexpr char kWorkerName[] = "decode-worker";  // in ps and top; 15 characters at most
constexpr int kArguments = 5;  // program, flag, server's process id, bytes of file and pixels
// Memory that malloc may keep for the next image.
constexpr size_t kKeptHeap = size_t{64} << 20;
// The kernel kills a worker before the server when memory ends; the range is -1000 to 1000.
constexpr int kOutOfMemoryScore = 500;

// Puts the first matrix that is as large as the picture where the server will look for it: mostly that
// is the result, which then need not be copied.
class PixelsAllocator final : public cv::MatAllocator {
 public:
  PixelsAllocator(std::byte* region, size_t bytes) : region_(region), bytes_(bytes) {}

  // `bytes` of the picture that is awaited; 0: none.
  void Expect(size_t bytes) { expected_ = bytes <= bytes_ ? bytes : 0; }

  cv::UMatData* allocate(int dims, const int* sizes, int type, void* data, size_t* step,
                         cv::AccessFlag flags, cv::UMatUsageFlags usage) const override {
    size_t bytes = CV_ELEM_SIZE(type);
    for (int i = 0; i < dims; ++i) bytes *= static_cast<size_t>(sizes[i]);
    if (data == nullptr && bytes == expected_ && step != nullptr) {
      expected_ = 0;
      data = region_;
      std::fill_n(step, dims, static_cast<size_t>(CV_AUTOSTEP));
    }
    return cv::Mat::getStdAllocator()->allocate(dims, sizes, type, data, step, flags, usage);
  }
  bool allocate(cv::UMatData* data, cv::AccessFlag flags, cv::UMatUsageFlags usage) const override {
    return cv::Mat::getStdAllocator()->allocate(data, flags, usage);
  }
  // Of ours: the standard one, which allocate() asked, is a matrix's own.
  void deallocate(cv::UMatData* data) const override {
    cv::Mat::getStdAllocator()->deallocate(data);
  }

 private:
  std::byte* const region_;
  const size_t bytes_;
  mutable size_t expected_ = 0;
};

template <typename Number>
bool ReadNumber(const char* text, Number* number) {
  const std::string_view all(text);
  const auto read = std::from_chars(all.data(), all.data() + all.size(), *number);
  return read.ec == std::errc() && read.ptr == all.data() + all.size();
}

uint64_t AddressSpace() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

template <typename Packet>
bool Send(const Packet& packet) {
  return write(kWorkerSocket, &packet, sizeof(packet)) == static_cast<ssize_t>(sizeof(packet));
}

// False once the server is gone.
bool Receive(DecodeCall* call) {
  ssize_t got = 0;
  do {
    got = read(kWorkerSocket, call, sizeof(*call));
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof(*call));
}

struct Worker {
  std::span<const std::byte> file;
  std::span<std::byte> pixels;
  const DecodeFunction& decode;
  PixelsAllocator allocator;
};

DecodeAnswer Refusal(const absl::Status& status) {
  DecodeAnswer answer = {};
  answer.code = static_cast<int32_t>(status.code());
  const std::string message(status.message());
  answer.message_bytes = static_cast<uint32_t>(std::min(message.size(), sizeof(answer.message)));
  std::memcpy(answer.message, message.data(), answer.message_bytes);
  return answer;
}

DecodeAnswer Serve(Worker& worker, const DecodeCall& call) {
  const auto file = worker.file.first(std::min<size_t>(call.file_bytes, worker.file.size()));
  worker.allocator.Expect(call.pixel_bytes);
  const absl::StatusOr<RgbImage> image = worker.decode(file, call.options);
  if (!image.ok()) return Refusal(image.status());
  if (image->bytes() > worker.pixels.size()) {
    return Refusal(absl::InternalError("the picture is larger than its header says"));
  }
  const auto* data = reinterpret_cast<const std::byte*>(image->data());
  if (data != worker.pixels.data()) std::memcpy(worker.pixels.data(), data, image->bytes());
  DecodeAnswer answer = {};
  answer.width = image->width();
  answer.height = image->height();
  return answer;
}

void ServeAll(Worker& worker) {
  DecodeCall call = {};
  while (Receive(&call)) {
    const DecodeAnswer answer = Serve(worker, call);
    if (!Send(answer)) return;
    TrimHeap(kKeptHeap);
  }
}

// Descriptors that the server did not mean to hand on.
void CloseOthers() {
  if (close_range(kWorkerPixels + 1, ~0U, 0) == 0) return;
  const long most = sysconf(_SC_OPEN_MAX);
  for (int fd = kWorkerPixels + 1; fd < most; ++fd) close(fd);
}

// What a decoder writes to standard error would be a hostile file's to say, without end, in the server's log.
// A sanitizer's report is worth having there.
ConfinementResult SilenceStandardError() {
  // Standard output leads nowhere already.
  if (ConfinesSystemCalls() && dup2(STDOUT_FILENO, STDERR_FILENO) < 0) return {errno, "dup2"};
  return {0, ""};
}

}  // namespace

bool IsDecodeWorker(int argc, const char* const* argv) {
  return argc > 1 && std::string_view(argv[1]) == kDecodeWorkerFlag;
}

int RunDecodeWorker(int argc, const char* const* argv, const DecodeFunction& decode) {
  pid_t server = 0;
  size_t file_bytes = 0, pixel_bytes = 0;
  if (argc != kArguments || !ReadNumber(argv[2], &server) || !ReadNumber(argv[3], &file_bytes) ||
      !ReadNumber(argv[4], &pixel_bytes)) {
    std::fprintf(stderr, "%s is for the server's own use\n", kDecodeWorkerFlag);
    return EXIT_FAILURE;
  }
  // It must not outlive the server, which may be gone already.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != server) return EXIT_FAILURE;
  CloseOthers();
  prctl(PR_SET_NAME, kWorkerName);
  // A stop of the whole process group (Ctrl-C) is the server's to handle: it drains first.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  std::ofstream("/proc/self/oom_score_adj") << kOutOfMemoryScore;
  cv::setNumThreads(1);

  void* file = mmap(nullptr, file_bytes, PROT_READ, MAP_SHARED, kWorkerFile, 0);
  void* pixels = mmap(nullptr, pixel_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, kWorkerPixels, 0);
  WorkerHello hello = {};
  ConfinementResult confined = {errno, "mmap"};
  if (file != MAP_FAILED && pixels != MAP_FAILED) {
    hello.address_space = AddressSpace();  // while /proc can be read
    confined = SilenceStandardError();
    if (confined.error == 0) confined = Confine(kWorkerSocket);
  }
  hello.error = confined.error;
  std::strncpy(hello.step, confined.step, sizeof(hello.step) - 1);
  if (!Send(hello) || hello.error != 0) return EXIT_FAILURE;

  auto* region = static_cast<std::byte*>(pixels);
  Worker worker = {.file = {static_cast<const std::byte*>(file), file_bytes},
                   .pixels = {region, pixel_bytes},
                   .decode = decode,
                   .allocator = PixelsAllocator(region, pixel_bytes)};
  cv::Mat::setDefaultAllocator(&worker.allocator);
  ServeAll(worker);
  _exit(EXIT_SUCCESS);  // destructors of the server's statics are not this process's business
}

}  // namespace deepencoder
