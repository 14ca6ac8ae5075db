#include "server/rpc/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
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

// The libraries' errors are mostly what a client did.
void Report(std::string_view message, bool error, std::string_view text, std::string_view file,
            int line) {
  if (!MayLog()) return;
  g_logger.load()->Log(error ? LogLevel::kWarning : LogLevel::kInfo, message,
                       {{"text", text},
                        {"from", file.substr(file.rfind('/') + 1)},
                        {"line", line},
                        {"left_out", g_left_out.exchange(0)}});
}

void ForwardGrpc(gpr_log_func_args* args) {
  Report("gRPC reports", args->severity == GPR_LOG_SEVERITY_ERROR, args->message, args->file,
         args->line);
}

void ForwardProtobuf(google::protobuf::LogLevel level, const char* file, int line,
                     const std::string& text) {
  Report("Protobuf reports", level >= google::protobuf::LOGLEVEL_ERROR, text, file, line);
}

}  // namespace

void ForwardGrpcLog(const Logger* logger) {
  g_logger = logger;
  gpr_set_log_function(ForwardGrpc);
  google::protobuf::SetLogHandler(ForwardProtobuf);
}

}  // namespace deepencoder
