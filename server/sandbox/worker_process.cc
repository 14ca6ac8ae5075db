#include "server/sandbox/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "encoder/base/descriptor.h"
#include "server/heap.h"
#include "server/sandbox/confinement.h"

namespace deepencoder {
namespace {

// How often the time that a silent worker has used is looked at.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// A worker that does not get the CPU, or is stopped: this many times the limit on CPU time.
constexpr int kWallLimits = 10;
constexpr absl::Duration kStartLimit = absl::Seconds(60);
// Address space beyond DecodeBytes: malloc's arenas and gaps, and the quarter by which it may round a size up.
constexpr uint64_t kMemorySlack = uint64_t{128} << 20;
constexpr uint64_t WithRounding(uint64_t bytes) { return bytes + bytes / 4; }
// Limits go by such steps, so that one need not be set for each image of a stream.
constexpr uint64_t kMemoryStep = uint64_t{32} << 20;
// CPU time that a worker may use between its answer and the next image: to give back its heap takes far less.
constexpr absl::Duration kIdleLimit = absl::Seconds(1);
// What a worker keeps of its regions: most scans fit, and need no pages made anew.
constexpr size_t kKeptFile = size_t{4} << 20, kKeptPixels = size_t{32} << 20;

// The environment of a worker: its heap's settings, how libraries are found, and a sanitizer's options. Secrets stay here.
constexpr const char* kInherited[] = {"LD_LIBRARY_PATH", "ASAN_OPTIONS", "LSAN_OPTIONS",
                                      "UBSAN_OPTIONS", "TSAN_OPTIONS"};

std::vector<std::string> WorkerEnvironment() {
  std::vector<std::string> lines = {kDecodeHeap};
  for (const char* name : kInherited) {
    if (const char* value = std::getenv(name); value != nullptr) {
      lines.push_back(absl::StrCat(name, "=", value));
    }
  }
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& lines) {
  std::vector<char*> pointers;
  pointers.reserve(lines.size() + 1);
  for (std::string& line : lines) pointers.push_back(line.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status NoWorker(const char* call, int error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no decode worker could be started: ", call, ": ", std::strerror(error)));
}

// Under a number that none of a worker's own descriptors has, so that putting one in place closes no other.
int Spare(int fd) {
  constexpr int kFirstSpare = 100;
  return fcntl(fd, F_DUPFD_CLOEXEC, kFirstSpare);
}

// What a worker gives as the reason of a refusal goes to a client and into the log, whoever may have taken the
// worker over: a code that decoders give, and a line of text.
absl::Status RefusalOf(const DecodeAnswer& answer) {
  constexpr absl::StatusCode kCodes[] = {absl::StatusCode::kInvalidArgument,
                                         absl::StatusCode::kResourceExhausted,
                                         absl::StatusCode::kInternal, absl::StatusCode::kUnknown};
  const auto code = static_cast<absl::StatusCode>(answer.code);
  if (std::find(std::begin(kCodes), std::end(kCodes), code) == std::end(kCodes)) {
    return absl::InternalError("a decode worker answered with a code that no decoder gives");
  }
  std::string text(answer.message, std::min<size_t>(answer.message_bytes, sizeof(answer.message)));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !absl::ascii_isprint(c); }, '?');
  return {code, text};
}

// waitpid, which a signal's handler does not end.
pid_t Collect(pid_t process, int* status) {
  pid_t collected = 0;
  do {
    collected = waitpid(process, status, 0);
  } while (collected < 0 && errno == EINTR);
  return collected;
}

bool ByItsOwnDoing(int signal) {
  constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};
  return std::find(std::begin(kFaults), std::end(kFaults), signal) != std::end(kFaults);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const WorkerOptions& options) {
  auto file = SharedRegion::Create("decode-file", options.max_file_bytes);
  if (!file.ok()) return file.status();
  auto pixels =
      SharedRegion::Create("decode-pixels", size_t{3} * static_cast<size_t>(options.max_pixels));
  if (!pixels.ok()) return pixels.status();
  std::unique_ptr<WorkerProcess> worker(
      new WorkerProcess(options, *std::move(file), *std::move(pixels)));
  if (absl::Status status = worker->Spawn(); !status.ok()) return status;
  return worker;
}

absl::Status WorkerProcess::Spawn() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return NoWorker("socketpair", errno);
  }
  socket_ = ends[0];
  // 0 would be for ever.
  const timeval look =
      absl::ToTimeval(std::clamp(options_.cpu_limit, absl::Milliseconds(1), kLook));
  if (setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof(look)) != 0) {
    close(ends[1]);
    return NoWorker("setsockopt", errno);
  }
  const Descriptor socket(Spare(ends[1])), file(Spare(file_->fd())), pixels(Spare(pixels_->fd()));
  close(ends[1]);
  if (socket.get() < 0 || file.get() < 0 || pixels.get() < 0) return NoWorker("dup", EMFILE);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, socket.get(), kWorkerSocket);
  posix_spawn_file_actions_adddup2(&actions, file.get(), kWorkerFile);
  posix_spawn_file_actions_adddup2(&actions, pixels.get(), kWorkerPixels);
  // Signals that the server has blocked for itself would stay blocked.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);

  std::vector<std::string> arguments = {"deepencoder-decode", kDecodeWorkerFlag,
                                        absl::StrCat(getpid()), absl::StrCat(file_->bytes()),
                                        absl::StrCat(pixels_->bytes())};
  std::vector<std::string> environment = WorkerEnvironment();
  const int error = posix_spawn(&pid_, options_.program.c_str(), &actions, &attributes,
                                Pointers(arguments).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return absl::OkStatus();
  pid_ = -1;
  return NoWorker("posix_spawn", error);
}

WorkerProcess::~WorkerProcess() {
  Kill();
  if (pid_ > 0) Collect(pid_, nullptr);
  if (socket_ >= 0) close(socket_);
}

void WorkerProcess::Kill() {
  if (pid_ > 0) kill(pid_, SIGKILL);
}

absl::Status WorkerProcess::AwaitReady() {
  if (ready_) return absl::OkStatus();
  pollfd readable = {.fd = socket_, .events = POLLIN, .revents = 0};
  WorkerHello hello = {};
  if (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(kStartLimit))) != 1) {
    return absl::UnavailableError("a decode worker did not start in time");
  }
  if (recv(socket_, &hello, sizeof(hello), 0) != static_cast<ssize_t>(sizeof(hello))) {
    return absl::UnavailableError("a decode worker ended before it was ready");
  }
  if (hello.error != 0) {
    hello.step[sizeof(hello.step) - 1] = '\0';
    return absl::UnavailableError(absl::StrCat(
        "a decode worker cannot confine itself: ", hello.step, ": ", std::strerror(hello.error)));
  }
  address_space_ = hello.address_space;
  if (absl::Status status = LimitMemory(0); !status.ok()) return status;
  cpu_at_rest_ = CpuTime();
  ready_ = true;
  return absl::OkStatus();
}

bool WorkerProcess::Listening() const {
  if (end_ != WorkerEnd::kNone) return false;
  pollfd readable = {.fd = socket_, .events = POLLIN, .revents = 0};
  return poll(&readable, 1, 0) == 0;  // nothing to read: no answer without a call, and no end
}

bool WorkerProcess::Resting() const { return !ready_ || CpuTime() - cpu_at_rest_ <= kIdleLimit; }

absl::Status WorkerProcess::LimitMemory(uint64_t decode_bytes) {
  if (!ConfinesSystemCalls()) return absl::OkStatus();  // sanitizers map terabytes
  const uint64_t steps = (WithRounding(decode_bytes) + kMemoryStep - 1) / kMemoryStep;
  const uint64_t wanted = address_space_ + steps * kMemoryStep + kMemorySlack;
  if (wanted == memory_limit_) return absl::OkStatus();
  rlimit limit = {};
  bool done = prlimit(pid_, RLIMIT_AS, nullptr, &limit) == 0;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted);
  done = done && prlimit(pid_, RLIMIT_AS, &limit, nullptr) == 0;
  if (!done) {
    return absl::UnavailableError(absl::StrCat(
        "the memory of a decode worker cannot be limited: prlimit: ", std::strerror(errno)));
  }
  memory_limit_ = wanted;
  return absl::OkStatus();
}

absl::StatusOr<PictureSize> WorkerProcess::Decode(std::span<const std::byte> file,
                                                  const ImageHeader& header,
                                                  const DecodeOptions& options) {
  if (file.size() > file_->bytes()) {
    return absl::ResourceExhaustedError(absl::StrCat("the image file has ", file.size(),
                                                     " bytes, over the limit of ", file_->bytes()));
  }
  ++images_;
  std::memcpy(file_->data(), file.data(), file.size());
  if (absl::Status status = LimitMemory(DecodeBytes(header)); !status.ok()) return status;
  const DecodeCall call = {.file_bytes = file.size(),
                           .pixel_bytes = size_t{3} * static_cast<size_t>(header.width) *
                                          static_cast<size_t>(header.height),
                           .options = options};
  if (send(socket_, &call, sizeof(call), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(call))) {
    return Ended(/*timed_out=*/false);
  }
  const absl::StatusOr<DecodeAnswer> answer = AwaitAnswer();
  if (!answer.ok()) return answer.status();
  if (answer->code != 0) return RefusalOf(*answer);
  const bool upright = answer->width == header.width && answer->height == header.height;
  const bool turned = answer->width == header.height && answer->height == header.width;
  if (!upright && !turned) {
    return absl::InternalError("a decode worker answered with a picture of another size");
  }
  return PictureSize{answer->width, answer->height};
}

absl::Duration WorkerProcess::CpuTime() const {
  clockid_t clock = 0;
  timespec used = {};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) {
    return absl::ZeroDuration();
  }
  return absl::DurationFromTimespec(used);
}

absl::StatusOr<DecodeAnswer> WorkerProcess::AwaitAnswer() {
  DecodeAnswer answer = {};
  const auto receive = [&] { return recv(socket_, &answer, sizeof(answer), 0); };
  const auto none_yet = [](ssize_t got) { return got < 0 && (errno == EAGAIN || errno == EINTR); };
  ssize_t got = receive();  // which waits for kLook at most
  if (none_yet(got)) {
    // It takes its time, so from here on that is counted.
    const absl::Time begin = absl::Now();
    const absl::Duration used = CpuTime();
    while (none_yet(got = receive())) {
      if (CpuTime() - used > options_.cpu_limit ||
          absl::Now() - begin > kWallLimits * options_.cpu_limit) {
        return Ended(/*timed_out=*/true);
      }
    }
  }
  if (got != static_cast<ssize_t>(sizeof(answer))) return Ended(/*timed_out=*/false);
  cpu_at_rest_ = CpuTime();
  return answer;
}

absl::Status WorkerProcess::Ended(bool timed_out) {
  Kill();
  int status = 0;
  const pid_t collected = Collect(pid_, &status);
  pid_ = -1;
  if (timed_out) {
    end_ = WorkerEnd::kTimeout;
    return absl::InvalidArgumentError(
        absl::StrCat("decoding the image took longer than the limit of ",
                     absl::FormatDuration(options_.cpu_limit)));
  }
  if (collected > 0 && WIFSIGNALED(status) && ByItsOwnDoing(WTERMSIG(status))) {
    end_ = WorkerEnd::kCrash;
    return absl::InvalidArgumentError(absl::StrCat(
        "the image's decoder failed (", strsignal(WTERMSIG(status)), "): the file is broken"));
  }
  end_ = WorkerEnd::kGone;
  return absl::InternalError("the process that decoded the image ended");
}

void WorkerProcess::Trim() {
  file_->Trim(kKeptFile);
  pixels_->Trim(kKeptPixels);
}

}  // namespace deepencoder
