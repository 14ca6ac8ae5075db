// deepencoder-server: options, start, serve, drain.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "encoder/version/version.h"
#include "server/image_decoder_choice.h"
#include "server/kserve/inference_service.h"
#include "server/metrics/device_metrics.h"
#include "server/metrics/exposition.h"
#include "server/metrics/metrics.h"
#include "server/metrics/process_metrics.h"
#include "server/model_loader.h"
#include "server/options.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/health_service.h"
#include "server/rpc/vision_encoder_service.h"
#include "server/sandbox/decode_worker.h"
#include "server/stop_signals.h"
#include "server/warm_up.h"

namespace deepencoder {
namespace {

constexpr int kExitUsage = 2;
// How often the engine is asked whether it is healthy.
constexpr absl::Duration kHealthPeriod = absl::Seconds(1);
// For replies that are on their way when the engine has drained.
constexpr absl::Duration kLastReplies = absl::Seconds(5);

// Where the server listens, as `name=address` lines; there complete or not at all.
absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& grpc_addresses,
                            const std::string& metrics_address) {
  const std::string temporary = path + ".new";
  {
    std::ofstream file(temporary);
    for (const std::string& address : grpc_addresses) file << "grpc=" << address << "\n";
    if (!metrics_address.empty()) file << "metrics=" << metrics_address << "\n";
    if (!file.flush()) return absl::UnavailableError("--ready-file: cannot write " + temporary);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError("--ready-file: cannot write " + path);
  }
  return absl::OkStatus();
}

// The parts of a running server. Members are destroyed from the last to the first: listeners, then the
// services behind them, then the engine, then what hears it.
class Server {
 public:
  Server(const ServerOptions& options, const Logger* logger)
      : options_(options),
        logger_(logger),
        service_(MakeRpcContext()),
        kserve_(MakeRpcContext(), [this] { return service_.Admit(); }),
        health_(ServiceNames()) {}

  // Opens the ports (health says NOT_SERVING), loads the model, warms up, says SERVING.
  absl::Status Start() {
    if (absl::Status status = Listen(); !status.ok()) return status;
    auto decoder = ChooseImageDecoder(options_, &metrics_, logger_);
    if (!decoder.ok()) return decoder.status();
    absl::StatusOr<LoadedModel> model =
        LoadModel(options_, *std::move(decoder), &metrics_, &clock_, logger_);
    if (!model.ok()) return model.status();
    WarnIfSynthetic(model->info);
    if (options_.warm_up) {
      const absl::Time begin = absl::Now();
      if (absl::Status status = WarmUp(*model->engine, options_.modes); !status.ok()) return status;
      logger_->Info("warmed up", {{"seconds", absl::ToDoubleSeconds(absl::Now() - begin)}});
    }
    Publish(*model);
    if (options_.ready_file.empty()) return absl::OkStatus();
    return WriteReadyFile(options_.ready_file, grpc_->addresses(), metrics_address());
  }

  // Until a stop is asked for. Health follows the engine's.
  void Serve(StopSignals& stop) {
    bool healthy = true;
    while (!stop.WaitFor(kHealthPeriod)) {
      const bool now = engine_->healthy();
      if (now == healthy) continue;
      healthy = now;
      SetServing(healthy);
      if (healthy) {
        logger_->Info("healthy again");
      } else {
        logger_->Error("a device slot was lost and could not be rebuilt: NOT_SERVING");
      }
    }
  }

  // True if every accepted image was answered.
  bool Stop() {
    const absl::Time deadline = absl::Now() + options_.drain_timeout;
    logger_->Info("draining", {{"timeout_seconds", absl::ToDoubleSeconds(options_.drain_timeout)}});
    SetServing(false);  // first, so that balancers turn away before calls are refused
    service_.Drain();
    const bool drained = engine_->Drain(deadline);
    if (!drained) logger_->Error("--drain-timeout passed with images unanswered: cancelling them");
    health_.Close();
    grpc_->Shutdown(drained ? absl::Now() + kLastReplies : absl::Now());
    logger_->Info("stopped");
    return drained;
  }

 private:
  RpcContext MakeRpcContext() {
    return {.rules = RulesOf(options_),
            .max_image_pixels = options_.max_image_pixels,
            .stream_window = static_cast<int>(options_.stream_window),
            .observer = &metrics_,
            .logger = logger_};
  }

  std::vector<std::string> ServiceNames() const {
    std::vector<std::string> names = {v1::VisionEncoder::service_full_name()};
    if (options_.kserve) names.push_back(inference::GRPCInferenceService::service_full_name());
    return names;
  }

  absl::Status Listen() {
    std::vector<grpc::Service*> services = {&service_, &health_};
    if (options_.kserve) services.push_back(&kserve_);
    auto grpc = GrpcServer::Start({.listen = options_.listen,
                                   .memory = options_.grpc_memory,
                                   .max_image_bytes = options_.max_image_bytes,
                                   .reflection = options_.reflection},
                                  services);
    if (!grpc.ok()) {
      return {grpc.status().code(), "--listen: " + std::string(grpc.status().message())};
    }
    grpc_ = *std::move(grpc);
    for (const std::string& address : grpc_->addresses()) {
      logger_->Info("listening", {{"for", "grpc"}, {"address", address}});
    }
    if (options_.metrics_listen.empty()) return absl::OkStatus();
    auto exposition =
        Exposition::Start(options_.metrics_listen,
                          {metrics_.collectable(), std::make_shared<ProcessMetrics>(), memory_});
    if (!exposition.ok()) {
      return {exposition.status().code(),
              "--metrics-listen: " + std::string(exposition.status().message())};
    }
    exposition_ = *std::move(exposition);
    logger_->Info("listening", {{"for", "metrics"}, {"address", metrics_address()}});
    return absl::OkStatus();
  }

  void WarnIfSynthetic(const v1::ModelInfo& info) const {
    if (!info.synthetic()) return;
    logger_->Warning("******************************************************************");
    logger_->Warning("SYNTHETIC CHECKPOINT: the weights are made up, the embeddings mean");
    logger_->Warning("nothing. Give --model the real DeepSeek-OCR checkpoint for real use.",
                     {{"fingerprint", info.weights_fingerprint()}});
    logger_->Warning("******************************************************************");
  }

  void Publish(const LoadedModel& model) {
    engine_ = model.engine;
    memory_->SetBackends(model.backends);
    metrics_.SetBuildInfo(model.info.version(), model.info.commit(), model.info.device(),
                          std::string(Name(model.compute)));
    metrics_.StartCounting();
    const std::string device = model.info.device();
    service_.SetServing(std::make_shared<const Serving>(Serving{model.engine, model.info}));
    SetServing(engine_->healthy());
    const double age = ProcessAge();
    metrics_.SetStartDuration(age);
    logger_->Info("serving", {{"device", device},
                              {"version", kBuildVersion},
                              {"commit", kBuildCommit},
                              {"start_seconds", age}});
  }

  void SetServing(bool serving) {
    health_.SetServing(serving);
    metrics_.SetServing(serving);
  }

  std::string metrics_address() const {
    return exposition_ == nullptr ? "" : exposition_->address();
  }

  const ServerOptions& options_;
  const Logger* const logger_;
  const WallClock clock_;
  Metrics metrics_;
  const std::shared_ptr<BackendMemory> memory_ = std::make_shared<BackendMemory>();
  std::shared_ptr<Engine> engine_;
  VisionEncoderService service_;
  kserve::InferenceService kserve_;
  HealthService health_;
  std::unique_ptr<Exposition> exposition_;
  std::unique_ptr<GrpcServer> grpc_;
};

int Run(const ServerOptions& options) {
  // The thread that waits for signals uses both until the process ends, so they are never freed.
  static auto* const logger = new Logger(options.log_level, options.log_format);
  static auto* const stop = new StopSignals(logger);
  logger->Info("deepencoder-server", {{"version", kBuildVersion}, {"commit", kBuildCommit}});
  Server server(options, logger);
  if (absl::Status status = server.Start(); !status.ok()) {
    logger->Error("cannot start", {{"reason", std::string(status.message())}});
    return EXIT_FAILURE;
  }
  stop->HandOver();
  server.Serve(*stop);
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
