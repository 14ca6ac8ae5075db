#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace deepencoder {
namespace {

constexpr int64_t kLinesASecond = 5;

std::atomic<const Logger*> g_logger{nullptr};
std::atomic<int64_t> g_second{0}, g_lines{0}, g_left_out{0};

// Two threads at the turn of a second may let a line more through, which is no harm.
bool MayLog() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const int64_t second = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  if (g_second.exchange(second) != second) g_lines = 0;
  if (++g_lines <= kLinesASecond) return true;
  ++g_left_out;
  return false;
}

void Forward(gpr_log_func_args* args) {
  if (!MayLog()) return;
  const std::string_view file = args->file;
  // gRPC's errors are mostly what a client did.
  g_logger.load()->Log(
      args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kInfo,
      "gRPC reports",
      {{"text", args->message},
       {"from", file.substr(file.rfind('/') + 1)},
       {"line", args->line},
       {"left_out", g_left_out.exchange(0)}});
}

}  // namespace

void ForwardGrpcLog(const Logger* logger) {
  g_logger = logger;
  gpr_set_log_function(Forward);
}

}  // namespace deepencoder
