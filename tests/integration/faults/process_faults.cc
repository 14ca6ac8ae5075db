#include "tests/integration/faults/process_faults.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <new>
#include <thread>

#include "tests/integration/faults/fault_rules.h"

// ThreadSanitizer's; null without it.
extern "C" {
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace deepencoder::faults {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

std::atomic<bool> begun{false};  // the rule of threads counts
// The rules of calls that are too many to read a file at each.
std::atomic<int64_t> failing_bytes{kNever}, clock_seconds{0};

// Says what has changed, for tests to wait for.
void Follow(const char* what, std::atomic<int64_t>* current, int64_t wanted) {
  if (current->exchange(wanted) != wanted) {
    std::fprintf(stderr, "faults: %s %lld\n", what, static_cast<long long>(wanted));
  }
}

// ThreadSanitizer leaves out what libraries allocate and free, whose locks it does not see, and knows
// them by who calls it. Through the operators below that is always this program: all is left out.
class WithoutThreadSanitizer {
 public:
  WithoutThreadSanitizer() {
    if (AnnotateIgnoreWritesBegin != nullptr) AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~WithoutThreadSanitizer() {
    if (AnnotateIgnoreWritesEnd != nullptr) AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  }
  WithoutThreadSanitizer(const WithoutThreadSanitizer&) = delete;
  WithoutThreadSanitizer& operator=(const WithoutThreadSanitizer&) = delete;
};

void* Allocate(size_t bytes) {
  const WithoutThreadSanitizer ignored;
  return std::malloc(bytes > 0 ? bytes : 1);
}

void Free(void* memory) {
  const WithoutThreadSanitizer ignored;
  std::free(memory);
}

}  // namespace

void BeginProcessFaults() {
  static std::atomic<bool> following{false};
  if (following.exchange(true)) return;
  std::thread([] {
    while (true) {
      Follow("new", &failing_bytes, NumberOf("new", "bytes", kNever));
      Follow("clock", &clock_seconds, NumberOf("clock", "seconds", 0));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }).detach();
  begun = true;
}

}  // namespace deepencoder::faults

// In the program itself, so in front of those of the libraries.

namespace faults = deepencoder::faults;

// The other forms call these, but for a sanitizer's, whose memory these must not free: std::stable_sort has
// its buffer of the form that does not throw.
// NOLINTBEGIN(misc-new-delete-overloads)
void* operator new(size_t bytes) {
  if (static_cast<int64_t>(bytes) < faults::failing_bytes) {
    if (void* memory = faults::Allocate(bytes)) return memory;
  }
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { faults::Free(memory); }
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { faults::Free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { faults::Free(memory); }
// NOLINTEND(misc-new-delete-overloads)

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&clock_gettime)>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += faults::clock_seconds;
  return result;
}

__attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                          const pthread_attr_t* attr,
                                                          void* (*start)(void*),
                                                          void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (faults::begun && faults::Next("thread")) return EAGAIN;
  return real(thread, attr, start, argument);
}

}  // extern "C"
