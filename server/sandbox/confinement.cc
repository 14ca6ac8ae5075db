#include "server/sandbox/confinement.h"

#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace deepencoder {
namespace {

#ifdef DEEPENCODER_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

using Filter = std::unique_ptr<void, void (*)(scmp_filter_ctx)>;

// What malloc, the decoders and the end of a process, orderly or not, call. Both clocks are a system call
// where the kernel cannot answer in user space.
constexpr int kFree[] = {
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(sched_yield),
    SCMP_SYS(getrandom),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(restart_syscall),
};

// 0, or a negative errno.
int AddRules(scmp_filter_ctx filter, int socket) {
  int error = 0;
  const auto allow = [&](int call, auto... arguments) {
    if (error == 0) {
      error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, sizeof...(arguments), arguments...);
    }
  };
  for (const int call : kFree) allow(call);
  allow(SCMP_SYS(read), SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(socket)));
  allow(SCMP_SYS(write), SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(socket)));
  allow(SCMP_SYS(write), SCMP_A0(SCMP_CMP_EQ, STDERR_FILENO));
  for (const int call : {SCMP_SYS(mmap), SCMP_SYS(mprotect)}) {
    allow(call, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  }
  // abort(), so that its signal tells what ended the process.
  allow(SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(getpid())));
  return error;
}

ConfinementResult FilterSystemCalls(int socket) {
  const Filter filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)), seccomp_release);
  if (filter == nullptr) return {ENOMEM, "seccomp_init"};
  if (const int error = AddRules(filter.get(), socket); error != 0)
    return {-error, "seccomp rules"};
  if (const int error = seccomp_load(filter.get()); error != 0) return {-error, "seccomp_load"};
  return {0, ""};
}

ConfinementResult LimitResources() {
  constexpr rlimit kNone = {0, 0};
  for (const auto resource : {RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_FSIZE}) {
    // A sanitizer opens files to report.
    if (kSanitized && resource != RLIMIT_CORE) continue;
    if (setrlimit(resource, &kNone) != 0) return {errno, "setrlimit"};
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return {errno, "PR_SET_NO_NEW_PRIVS"};
  return {0, ""};
}

}  // namespace

ConfinementResult Confine(int socket) {
  const ConfinementResult limited = LimitResources();
  if (limited.error != 0 || kSanitized) return limited;
  return FilterSystemCalls(socket);
}

bool ConfinesSystemCalls() { return !kSanitized; }

}  // namespace deepencoder
