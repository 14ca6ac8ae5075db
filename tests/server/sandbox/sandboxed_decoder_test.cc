// The program is its own worker. A worker of the tests decodes as any other, but obeys a file that begins
// with "do:": what a decoder does that a hostile file has taken over.
#include "server/sandbox/sandboxed_decoder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/sandbox/confinement.h"
#include "server/sandbox/decode_worker.h"
#include "tests/encoder/image/test_files.h"
#include "tests/encoder/image/webp_groups.h"
#include "tests/server/sandbox/orders.h"

namespace deepencoder {
namespace {

// ---------------------------------------------------------------- the worker's misdeeds

// What a system call gave: "0", or its errno.
std::string Outcome(long result) { return absl::StrCat(result < 0 ? errno : 0); }

std::string Attempt(const std::string& what) {
  if (what == "open") return Outcome(open("/etc/passwd", O_RDONLY));
  if (what == "socket") return Outcome(socket(AF_INET, SOCK_STREAM, 0));
  if (what == "fork") return Outcome(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (what == "exec") {
    char* const none[] = {nullptr};
    return Outcome(execve("/bin/true", none, none));
  }
  if (what == "kill") return Outcome(kill(getppid(), 0));
  if (what == "read_memory")
    return Outcome(syscall(SYS_process_vm_readv, 1, nullptr, 0, nullptr, 0, 0));
  if (what == "process") return absl::StrCat(getpid());
  if (what == "garble") return std::string("\x1B[2J\n\xFF") + std::string(1000, 'x');
  if (what == "code") {
    void* code = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return Outcome(code == MAP_FAILED ? -1 : 0);
  }
  if (what == "read") {
    char byte = 0;
    return Outcome(read(STDIN_FILENO, &byte, 1));
  }
  return "unknown";
}

// Ends or stays, as told. Memory is written to, so that it is really taken.
void Misbehave(const std::string& what) {
  if (what == "segfault") {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit with a report
    raise(SIGSEGV);
  }
  if (what == "abort") std::abort();
  if (what == "killed") raise(SIGKILL);  // as the kernel does where memory ends
  if (what == "exit") _exit(3);
  if (what == "stop") raise(SIGSTOP);
  static volatile bool forever = true;
  while (what == "loop" && forever) {
  }
  if (what == "memory") {
    std::vector<std::string> taken;
    for (int i = 0; i < 64; ++i) taken.emplace_back(size_t{16} << 20, 'x');  // 1 GiB
  }
}

absl::StatusOr<RgbImage> ObedientDecode(std::span<const std::byte> file,
                                        const DecodeOptions& options) {
  const std::optional<std::string> order = OrderIn(file);
  if (!order) return DecodeImage(file, options);
  const std::string& what = *order;
  try {
    Misbehave(what);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory");
  }
  if (what == "strange") return absl::UnauthenticatedError("who are you?");
  if (what == "large") return RgbImage(cv::Mat(64, 64, CV_8UC3));
  return absl::UnknownError(Attempt(what));
}

// ---------------------------------------------------------------- the server's side

SandboxOptions Options(int workers, absl::Duration cpu_limit = absl::Seconds(20)) {
  return {.worker = {.max_file_bytes = size_t{8} << 20,
                     .max_pixels = 10'000'000,
                     .cpu_limit = cpu_limit},
          .workers = workers,
          .log = {}};
}

class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = SandboxedDecoder::Create(Options(1), &ends_);
    ASSERT_TRUE(made.ok()) << made.status();
    decoder_ = *std::move(made);
  }
  absl::Status StatusOf(const FileBytes& file) { return decoder_->Decode(file, {}).status(); }
  void ExpectItDecodes() {
    const auto image = decoder_->Decode(ReadTestImage("exif_6.jpg"), {});
    EXPECT_TRUE(image.ok()) << image.status();
  }

  Ends ends_;
  std::unique_ptr<SandboxedDecoder> decoder_;
};

TEST_F(Sandbox, GivesTheSamePicturesAndRefusals) {
  size_t pictures = 0;
  for (const char* folder : {"/images", "/formats"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(DEEPENCODER_TEST_DATA) + folder)) {
      if (entry.path().extension() == ".txt") continue;
      FileBytes file = ReadTestFile(entry.path().string());
      for (const size_t bytes : {file.size(), file.size() / 2}) {
        file.resize(bytes);
        DecodeOptions options;
        options.alpha = bytes % 2 == 0 ? AlphaPolicy::kDrop : AlphaPolicy::kWhite;
        const auto here = DecodeImage(file, options);
        const auto there = decoder_->Decode(file, options);
        ASSERT_EQ(here.status(), there.status()) << entry.path();
        if (!here.ok()) continue;
        ++pictures;
        ASSERT_EQ(here->width(), there->image.width()) << entry.path();
        ASSERT_EQ(here->bytes(), there->image.bytes());
        ASSERT_EQ(std::memcmp(here->data(), there->image.data(), here->bytes()), 0) << entry.path();
      }
    }
  }
  EXPECT_GT(pictures, 100u);
  EXPECT_EQ(ends_.alive, 1);
}

TEST_F(Sandbox, DeniesWhatDecodingDoesNotNeed) {
  if (!ConfinesSystemCalls()) GTEST_SKIP() << "not under a sanitizer";
  for (const char* what :
       {"open", "socket", "fork", "exec", "kill", "read_memory", "code", "read"}) {
    const absl::Status status = StatusOf(Order(what));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown) << what << ": " << status;
    EXPECT_EQ(status.message(), absl::StrCat(EPERM)) << what;
  }
  ExpectItDecodes();
}

TEST_F(Sandbox, ACrashCostsItsImageAlone) {
  int crashes = 0;
  for (const char* what : {"segfault", "abort"}) {
    const absl::Status status = StatusOf(Order(what));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what << ": " << status;
    EXPECT_EQ(ends_.of(WorkerEnd::kCrash), ++crashes) << what;
    EXPECT_EQ(ends_.alive, 0);
    ExpectItDecodes();
    EXPECT_EQ(ends_.alive, 1);
  }
}

TEST_F(Sandbox, AWorkerThatIsKilledOrExitsIsTheServersFault) {
  int gone = 0;
  for (const char* what : {"killed", "exit"}) {
    const absl::Status status = StatusOf(Order(what));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << what << ": " << status;
    EXPECT_EQ(ends_.of(WorkerEnd::kGone), ++gone) << what;
    ExpectItDecodes();
  }
}

TEST_F(Sandbox, EndlessWorkIsEnded) {
  auto impatient = SandboxedDecoder::Create(Options(1, absl::Milliseconds(300)), &ends_);
  ASSERT_TRUE(impatient.ok()) << impatient.status();
  decoder_ = *std::move(impatient);
  int timeouts = 0;
  for (const char* what : {"loop", "stop"}) {  // on the CPU, and off it
    const absl::Status status = StatusOf(Order(what));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what << ": " << status;
    EXPECT_NE(status.message().find("limit of 300ms"), std::string::npos) << status;
    EXPECT_EQ(ends_.of(WorkerEnd::kTimeout), ++timeouts) << what;
    ExpectItDecodes();
  }
}

TEST_F(Sandbox, MemoryIsBoundedByTheImage) {
  if (!ConfinesSystemCalls()) GTEST_SKIP() << "not under a sanitizer";
  const absl::Status status = StatusOf(Order("memory"));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  ExpectItDecodes();
  // A later image may need what an earlier one was denied.
  const auto large = decoder_->Decode(EncodePng(TestPicture(2000, 1500)), {});
  EXPECT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(ends_.alive, 1);
}

TEST_F(Sandbox, WebpTablesAreBounded) {
  if (!ConfinesSystemCalls()) GTEST_SKIP() << "not under a sanitizer";
  EXPECT_TRUE(StatusOf(WebpOfGroups(2048)).ok());             // 42 MB, as counted
  const absl::Status status = StatusOf(WebpOfGroups(65536));  // 1.35 GB
  // Some versions of libwebp take a lack of memory for a broken file.
  EXPECT_NE(status.message().find("memory"), std::string::npos) << status;
  EXPECT_TRUE(StatusOf(WebpOfGroups(2048)).ok());
  EXPECT_EQ(ends_.alive, 1);
}

TEST_F(Sandbox, APictureOfAnotherSizeIsNotBelieved) {
  EXPECT_EQ(StatusOf(Order("large")).code(), absl::StatusCode::kInternal);
  ExpectItDecodes();
}

TEST_F(Sandbox, ItsWordsAreNotPassedOnUnchecked) {
  const absl::Status garbled = StatusOf(Order("garble"));
  EXPECT_EQ(garbled.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(garbled.message(), "?[2J??" + std::string(250, 'x'));
  const absl::Status strange = StatusOf(Order("strange"));
  EXPECT_EQ(strange.code(), absl::StatusCode::kInternal) << strange;
  EXPECT_EQ(strange.message().find("who"), std::string_view::npos) << strange;
  ExpectItDecodes();
}

TEST_F(Sandbox, FilesOverTheLimitAreRefused) {
  FileBytes file = EncodePng(TestPicture(8, 8));
  file.resize((size_t{8} << 20) + 1);
  EXPECT_EQ(StatusOf(file).code(), absl::StatusCode::kResourceExhausted);
  ExpectItDecodes();
}

TEST_F(Sandbox, AnImageKeepsItsWorker) {
  auto held = decoder_->Decode(EncodePng(TestPicture(40, 30)), {});
  ASSERT_TRUE(held.ok());
  const RgbImage expected = TestPicture(40, 30);
  // Another waits until the only worker's memory is free again, and only then changes it.
  std::thread other([&] { ExpectItDecodes(); });
  EXPECT_EQ(std::memcmp(held->image.data(), expected.data(), expected.bytes()), 0);
  held = absl::CancelledError("let go");
  other.join();
}

class ShortLives : public Sandbox {
 protected:
  static constexpr int kImages = 3;  // the successor starts before the second
  void SetUp() override {
    SandboxOptions options = Options(1);
    options.images_per_worker = kImages;
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    auto made = SandboxedDecoder::Create(options, &ends_);
    ASSERT_TRUE(made.ok()) << made.status();
    decoder_ = *std::move(made);
  }
  // The worker's process id, as it says.
  std::string Process() { return std::string(StatusOf(Order("process")).message()); }

  std::vector<std::string> lines_;
};

TEST_F(ShortLives, AnotherTakesAWorkersPlaceAfterItsImages) {
  std::string last;
  for (int life = 0; life < 3; ++life) {
    const std::string process = Process();
    EXPECT_NE(process, last);
    for (int i = 1; i < kImages; ++i) EXPECT_EQ(Process(), process);
    EXPECT_EQ(kill(std::stoi(process), 0), -1) << "it has gone";
    EXPECT_EQ(ends_.alive, 1);
    last = process;
  }
  for (const WorkerEnd end : kWorkerEnds) EXPECT_EQ(ends_.of(end), 0) << Name(end);
  EXPECT_TRUE(lines_.empty()) << lines_.front();
}

TEST_F(ShortLives, TheLastImageIsKeptAsAnyOther) {
  for (int i = 1; i < kImages; ++i) ExpectItDecodes();
  auto held = decoder_->Decode(EncodePng(TestPicture(40, 30)), {});
  ASSERT_TRUE(held.ok()) << held.status();
  const RgbImage expected = TestPicture(40, 30);
  EXPECT_EQ(std::memcmp(held->image.data(), expected.data(), expected.bytes()), 0);
  held = absl::CancelledError("let go");
  ExpectItDecodes();
}

TEST_F(ShortLives, ACrashOverALastImageIsACrash) {
  ExpectItDecodes();
  EXPECT_FALSE(StatusOf(Order("segfault")).ok());
  EXPECT_EQ(ends_.of(WorkerEnd::kCrash), 1);
  ExpectItDecodes();
  EXPECT_EQ(ends_.alive, 1);
  EXPECT_EQ(ends_.of(WorkerEnd::kGone), 0);
}

TEST_F(ShortLives, AWorkerStaysWhereNoOtherCanBeStarted) {
  const std::string process = Process();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 1; i < kImages; ++i) EXPECT_EQ(Process(), process);
  EXPECT_EQ(Process(), process);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_.front().find("longer than its 3 images"), std::string::npos) << lines_.front();
  for (int i = 1; i < kImages; ++i) EXPECT_EQ(Process(), process);
  EXPECT_NE(Process(), process);
}

TEST(SandboxPool, SurvivesHostileAndGoodImagesOfManyThreads) {
  Ends ends;
  SandboxOptions options = Options(3);
  options.images_per_worker = 4;
  auto decoder = SandboxedDecoder::Create(options, &ends);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  const FileBytes good = ReadTestImage("exif_6.jpg");
  const RgbImage expected = *DecodeImage(good, {});
  std::atomic<int> pictures{0};
  std::vector<std::thread> threads;
  // A thread that ends takes the workers with it that it has started.
  std::barrier all_done(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 12; ++i) {
        if ((i + t) % 4 == 0) {
          EXPECT_FALSE((*decoder)->Decode(Order(i % 2 == 0 ? "segfault" : "killed"), {}).ok());
          continue;
        }
        const auto image = (*decoder)->Decode(good, {});
        EXPECT_TRUE(image.ok()) << image.status();
        if (!image.ok()) continue;
        if (std::memcmp(image->image.data(), expected.data(), expected.bytes()) == 0) ++pictures;
      }
      all_done.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pictures, 4 * 9);
  EXPECT_EQ(ends.of(WorkerEnd::kCrash) + ends.of(WorkerEnd::kGone), 4 * 3);
}

TEST(SandboxPool, IsCollectedWhateverSignalsCome) {
  struct sigaction caught = {}, before = {};
  caught.sa_handler = [](int) {};  // without SA_RESTART
  ASSERT_EQ(sigaction(SIGALRM, &caught, &before), 0);
  for (int i = 0; i < 5; ++i) {
    auto worker = WorkerProcess::Start(Options(1).worker);
    ASSERT_TRUE(worker.ok()) << worker.status();
    ASSERT_TRUE((*worker)->AwaitReady().ok());
    const itimerval often = {.it_interval = {0, 50}, .it_value = {0, 50}}, never = {};
    ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
    worker->reset();
    ASSERT_EQ(setitimer(ITIMER_REAL, &never, nullptr), 0);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  }
  ASSERT_EQ(sigaction(SIGALRM, &before, nullptr), 0);
}

TEST(SandboxPool, SaysWhyItCannotBe) {
  SandboxOptions options = Options(1);
  options.worker.program = "/bin/false";  // starts, and ends at once
  EXPECT_EQ(SandboxedDecoder::Create(options, nullptr).status().code(),
            absl::StatusCode::kUnavailable);
  options.worker.program = "/nowhere/at/all";
  const absl::Status absent = SandboxedDecoder::Create(options, nullptr).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(absent.message().find("No such file"), std::string::npos) << absent;
}

// Exit status of a process whose system calls prlimit64 for other processes fail: 0 if no decoder can be made
// there, for that reason.
int CreateWithoutPrlimit() {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (filter == nullptr ||
      seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), 1,
                       SCMP_A0(SCMP_CMP_NE, 0)) != 0 ||
      seccomp_load(filter) != 0) {
    return 2;
  }
  const absl::Status status = SandboxedDecoder::Create(Options(1), nullptr).status();
  const bool expected = status.code() == absl::StatusCode::kUnavailable &&
                        status.message().find("prlimit: ") != std::string_view::npos;
  if (!expected) std::cerr << status << "\n";
  return expected ? 0 : 1;
}

TEST(SandboxPool, CannotBeWithoutALimitOnMemory) {
  if (!ConfinesSystemCalls()) GTEST_SKIP() << "not under a sanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // threads may be left of tests before
  EXPECT_EXIT(_exit(CreateWithoutPrlimit()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace deepencoder

int main(int argc, char** argv) {
  return deepencoder::RunWorkerOrTests(argc, argv, deepencoder::ObedientDecode);
}
