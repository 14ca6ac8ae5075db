// What a worker does that a hostile file has taken over, besides its answer or after it. The program is its own
// worker: one of the tests obeys the first letter of a PNG's text.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/sandbox/confinement.h"
#include "server/sandbox/decode_worker.h"
#include "server/sandbox/protocol.h"
#include "server/sandbox/sandboxed_decoder.h"
#include "tests/encoder/image/test_files.h"
#include "tests/server/sandbox/orders.h"

namespace deepencoder {
namespace {

constexpr int64_t kMaxPixels = 30'000'000;
constexpr size_t kRegionBytes = 3 * kMaxPixels;
// More than a worker may keep, less than the region.
constexpr size_t kMuch = size_t{64} << 20;
constexpr int kSide = 8;

// ---------------------------------------------------------------- the worker's misdeeds

// The first matrix of the picture's size lies at the start of the pixels' region.
void Fill(cv::Mat& picture) { std::memset(picture.data, 1, kRegionBytes); }

void Answer() {
  DecodeAnswer answer = {};
  answer.width = answer.height = kSide;
  if (write(kWorkerSocket, &answer, sizeof(answer)) < 0) _exit(1);
}

absl::StatusOr<RgbImage> TakenOver(std::span<const std::byte> file, const DecodeOptions& options) {
  const std::optional<std::string> order = OrderIn(file);
  if (!order) return DecodeImage(file, options);
  const std::string& what = *order;
  cv::Mat picture(kSide, kSide, CV_8UC3);
  if (what == "process") return absl::UnknownError(absl::StrCat(getpid()));
  if (what == "fill") Fill(picture);
  if (what == "shout") {
    constexpr std::string_view kWords = "what a hostile file has to say\n";
    const bool heard = write(STDERR_FILENO, kWords.data(), kWords.size()) > 0;
    return absl::UnknownError(heard ? "wrote" : std::strerror(errno));
  }
  if (what == "work on") {
    Answer();
    for (;;) Fill(picture);
  }
  return RgbImage(picture);
}

// ---------------------------------------------------------------- the server's side

WorkerOptions Options() {
  return {
      .max_file_bytes = size_t{1} << 20, .max_pixels = kMaxPixels, .cpu_limit = absl::Seconds(20)};
}

// Memory that this process's regions for pixels hold.
size_t BytesHeld() {
  size_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the folder's own
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    struct stat held = {};
    if (target.find("decode-pixels") != std::string::npos && stat(entry.path().c_str(), &held) == 0)
      bytes += static_cast<size_t>(held.st_blocks) * 512;
  }
  return bytes;
}

// Polls until `condition` holds; the limit only keeps a broken build from waiting for ever.
template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 6'000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return false;
}

// Ended, and not collected.
bool IsZombie(pid_t process) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == process;
}

// Standard error leads here while this lives.
class StandardError {
 public:
  StandardError() : saved_(dup(STDERR_FILENO)), file_(memfd_create("stderr", MFD_CLOEXEC)) {
    dup2(file_, STDERR_FILENO);
  }
  ~StandardError() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(file_);
  }
  std::string text() const {
    std::string text(4096, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(file_, text.data(), 4096, 0))));
    return text;
  }

 private:
  const int saved_, file_;
};

absl::Status StatusOf(WorkerProcess& worker, const FileBytes& file) {
  return worker.Decode(file, *ReadHeader(file, {}), {}).status();
}

TEST(TakenOverWorker, KeepsNoMemoryThatItsHeaderDoesNotName) {
  auto worker = WorkerProcess::Start(Options());
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE((*worker)->AwaitReady().ok());
  EXPECT_TRUE(StatusOf(**worker, Order("fill")).ok());
  EXPECT_GE(BytesHeld(), kRegionBytes);
  (*worker)->Trim();
  EXPECT_LT(BytesHeld(), kMuch);
}

TEST(TakenOverWorker, WritesNothingToTheServersLog) {
  if (!ConfinesSystemCalls()) GTEST_SKIP() << "a sanitizer reports there";
  const StandardError caught;
  auto worker = WorkerProcess::Start(Options());
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE((*worker)->AwaitReady().ok());
  EXPECT_EQ(StatusOf(**worker, Order("shout")).message(), "wrote");
  worker->reset();
  EXPECT_EQ(caught.text(), "");
}

TEST(TakenOverWorker, BeforeItIsConfinedItsWordsAreHeard) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // threads may be left of tests before
  const char* const arguments[] = {"program", kDecodeWorkerFlag};
  EXPECT_EXIT(_exit(RunDecodeWorker(2, arguments, TakenOver)),
              testing::ExitedWithCode(EXIT_FAILURE), "for the server's own use");
}

TEST(TakenOverWorker, IsEndedIfItWorksWithoutAnImage) {
  Ends ends;
  std::string line;
  auto decoder = SandboxedDecoder::Create(
      {.worker = Options(), .log = [&](const std::string& text) { line = text; }}, &ends);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  const std::string process((*decoder)->Decode(Order("process"), {}).status().message());
  pid_t pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(process, &pid)) << process;
  EXPECT_TRUE((*decoder)->Decode(Order("work on"), {}).ok());
  // Without another image.
  EXPECT_TRUE(Eventually([&] { return IsZombie(pid); }));
  EXPECT_TRUE(Eventually([&] { return BytesHeld() < kMuch; }));
  EXPECT_EQ(line, "");

  EXPECT_TRUE((*decoder)->Decode(ReadTestImage("exif_6.jpg"), {}).ok());
  EXPECT_NE(line.find("used CPU time while it had no image"), std::string::npos) << line;
  EXPECT_EQ(ends.of(WorkerEnd::kGone), 1);
  EXPECT_EQ(ends.alive, 1);
}

TEST(TakenOverWorker, IsToldByTheTimeThatItUsesWithoutAnImage) {
  auto worker = WorkerProcess::Start(Options());
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE((*worker)->AwaitReady().ok());
  EXPECT_TRUE(StatusOf(**worker, EncodePng(TestPicture(kSide, kSide))).ok());
  EXPECT_TRUE((*worker)->Resting());
  EXPECT_TRUE(StatusOf(**worker, Order("work on")).ok());
  EXPECT_TRUE(Eventually([&] { return !(*worker)->Resting(); }));
  EXPECT_TRUE((*worker)->Listening()) << "nothing else tells";
}

}  // namespace
}  // namespace deepencoder

int main(int argc, char** argv) {
  return deepencoder::RunWorkerOrTests(argc, argv, deepencoder::TakenOver);
}
