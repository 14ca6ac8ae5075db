// deepencoder-server: options, start, serve, drain.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "encoder/version/version.h"
#include "server/log.h"
#include "server/metrics/metric_table.h"
#include "server/options.h"
#include "server/rpc/grpc_log.h"
#include "server/sandbox/decode_worker.h"
#include "server/server.h"
#include "server/signals.h"
#include "server/trace/otlp_exporter.h"

namespace deepencoder {
namespace {

constexpr int kExitUsage = 2;

// Null without an endpoint.
absl::StatusOr<std::unique_ptr<OtlpExporter>> StartExporter(const ServerOptions& options,
                                                            const Logger* logger) {
  if (options.otlp_endpoint.empty()) return nullptr;
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  auto exporter =
      OtlpExporter::Start({.endpoint = options.otlp_endpoint,
                           .resource = {{"service.name", options.otlp_service_name},
                                        {"service.version", std::string(kBuildVersion)},
                                        {"service.instance.id", absl::StrCat(host, ":", getpid())},
                                        {"host.name", std::string(host)},
                                        {"vcs.ref.head.revision", std::string(kBuildCommit)}},
                           .version = kBuildVersion,
                           .queue = static_cast<size_t>(options.otlp_queue)},
                          logger);
  if (exporter.ok()) return exporter;
  return absl::Status(exporter.status().code(),
                      "--otlp-endpoint: " + std::string(exporter.status().message()));
}

// Nothing of ours throws, but allocation and the start of a thread do.
absl::Status StartOf(Server& server, Signals& signals) {
  try {
    return server.Start(signals);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

int Run(const ServerOptions& options) {
  // Debian's Abseil looks for deadlocks at every lock of gRPC's, under one lock of the whole process.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // The thread that waits for signals uses both until the process ends, so they are never freed.
  static auto* const logger = new Logger(options.log_level, options.log_format);
  static auto* const signals = new Signals(logger);
  logger->Info("deepencoder-server", {{"version", kBuildVersion}, {"commit", kBuildCommit}});
  ForwardGrpcLog(logger);
  absl::StatusOr<std::unique_ptr<OtlpExporter>> exporter = StartExporter(options, logger);
  if (!exporter.ok()) {
    logger->Error("cannot start", {{"reason", std::string(exporter.status().message())}});
    return EXIT_FAILURE;
  }
  Server server(options, logger, *std::move(exporter));
  if (absl::Status status = StartOf(server, *signals); !status.ok()) {
    logger->Error("cannot start", {{"reason", std::string(status.message())}});
    return EXIT_FAILURE;
  }
  server.Serve(*signals);
  return server.Stop() ? EXIT_SUCCESS : EXIT_FAILURE;
}

int Main(int argc, const char* const* argv) {
  if (IsDecodeWorker(argc, argv)) return RunDecodeWorker(argc, argv);
  const absl::StatusOr<Command> command =
      ParseCommandLine({argv + 1, argv + argc}, [](const char* name) { return std::getenv(name); });
  if (!command.ok()) {
    std::fprintf(stderr, "deepencoder-server: %s\n",
                 std::string(command.status().message()).c_str());
    return kExitUsage;
  }
  std::string text;
  switch (command->action) {
    case Command::Action::kServe:
      return Run(command->options);
    case Command::Action::kHelp:
      text = HelpText();
      break;
    case Command::Action::kVersion:
      text = std::string("deepencoder-server ") + kBuildVersion + " (" + kBuildCommit + ")\n";
      break;
    case Command::Action::kMetricsDocs:
      text = MetricsMarkdown();
      break;
    case Command::Action::kOptionsDocs:
      text = OptionsMarkdown();
      break;
  }
  std::fputs(text.c_str(), stdout);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace deepencoder

int main(int argc, char** argv) { return deepencoder::Main(argc, argv); }
