// deepencoder-server: options, start, serve, drain.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "encoder/version/version.h"
#include "server/credentials.h"
#include "server/engine/client_limits.h"
#include "server/engine/limited_engine.h"
#include "server/exit_timer.h"
#include "server/heap.h"
#include "server/image_decoder_choice.h"
#include "server/kserve/inference_service.h"
#include "server/metrics/device_metrics.h"
#include "server/metrics/exposition.h"
#include "server/metrics/gpu_monitor.h"
#include "server/metrics/metrics.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/shared_memory_metrics.h"
#include "server/metrics/trace_metrics.h"
#include "server/model_loader.h"
#include "server/options.h"
#include "server/reloader.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/grpc_log.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/health_service.h"
#include "server/rpc/pending_replies.h"
#include "server/rpc/request_limit.h"
#include "server/rpc/shared_memory_service.h"
#include "server/rpc/vision_encoder_service.h"
#include "server/sandbox/decode_worker.h"
#include "server/shared_memory/region_table.h"
#include "server/signals.h"
#include "server/trace/otlp_exporter.h"
#include "server/trace/tracer.h"
#include "server/warm_up.h"

namespace deepencoder {
namespace {

constexpr int kExitUsage = 2;
// How often the engine is asked whether it is healthy.
constexpr absl::Duration kHealthPeriod = absl::Seconds(1);
constexpr absl::Duration kTrimPeriod = absl::Minutes(1);
// For replies that are on their way when the engine has drained.
constexpr absl::Duration kLastReplies = absl::Seconds(5);
// For messages of the admin service, which are short; gRPC takes no less.
constexpr int64_t kAdminMemory = int64_t{16} << 20;
// From the drain's end to the process': the last replies, then what the engine and the devices hold is freed.
constexpr absl::Duration kTeardown = absl::Seconds(8);

// Where the server listens, as `name=address` lines; there complete or not at all.
absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& grpc_addresses,
                            const std::string& metrics_address, const std::string& admin_address) {
  const std::string temporary = path + ".new";
  {
    std::ofstream file(temporary);
    for (const std::string& address : grpc_addresses) file << "grpc=" << address << "\n";
    if (!metrics_address.empty()) file << "metrics=" << metrics_address << "\n";
    if (!admin_address.empty()) file << "admin=" << admin_address << "\n";
    if (!file.flush()) return absl::UnavailableError("--ready-file: cannot write " + temporary);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError("--ready-file: cannot write " + path);
  }
  return absl::OkStatus();
}

std::vector<GpuAddress> GpusOf(const ModelFacts& model) {
  std::vector<GpuAddress> gpus;
  for (const std::weak_ptr<const Backend>& weak : model.Backends()) {
    if (const std::shared_ptr<const Backend> backend = weak.lock()) {
      gpus.push_back({backend->info().device, backend->info().pci_bus_id});
    }
  }
  return gpus;
}

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

absl::Duration OrInfinite(absl::Duration bound) {
  return bound == absl::ZeroDuration() ? absl::InfiniteDuration() : bound;
}

ConnectionOptions ConnectionOptionsOf(const ServerOptions& options) {
  return {.max_connections = options.max_connections,
          .max_connections_per_address = options.max_connections_per_address,
          .max_streams = options.max_streams,
          .max_metadata = options.max_metadata,
          .keepalive = OrInfinite(options.keepalive),
          .max_idle = OrInfinite(options.max_connection_idle),
          .max_age = OrInfinite(options.max_connection_age),
          .max_age_grace = OrInfinite(options.max_connection_age_grace)};
}

PendingReplyLimits ReplyLimitsOf(const ServerOptions& options) {
  return {.timeout = OrInfinite(options.reply_timeout),
          .bytes = options.reply_memory == 0 ? INT64_MAX : options.reply_memory};
}

ClientLimitOptions ClientLimitsOf(const ServerOptions& options) {
  return {.images_per_second = options.client_images_per_second,
          .bytes_per_second = options.client_bytes_per_second,
          .images_in_flight = options.client_images_in_flight};
}

// The parts of a running server. Members are destroyed from the last to the first: listeners, then the
// services behind them, then the engine, then what hears it.
class Server {
 public:
  // `exporter` may be null.
  Server(const ServerOptions& options, const Logger* logger, std::unique_ptr<OtlpExporter> exporter)
      : options_(options),
        logger_(logger),
        exporter_(std::move(exporter)),
        tracer_(exporter_ == nullptr
                    ? nullptr
                    : std::make_unique<Tracer>(options.trace_ratio, exporter_.get())),
        gpus_(std::make_shared<GpuMonitor>(GpuMonitorOptions{.period = options.gpu_metrics_period},
                                           &clock_, logger)),
        credentials_(options_, &metrics_, logger_),
        replies_(ReplyLimitsOf(options_), [this](std::string_view why) { OnStalledReply(why); }),
        requests_(options_.max_requests_in_flight, &metrics_, &clock_),
        regions_(MakeRegions()),
        service_(MakeRpcContext()),
        shared_memory_(MakeRpcContext()),
        kserve_(MakeRpcContext(), [this] { return service_.Admit(); }),
        health_(ServiceNames()),
        admin_(&credentials_.operator_names(),
               [this](const std::string& folder, std::string by, Reloader::Done done) {
                 StartReload(folder, std::move(by), std::move(done));
               }),
        reloader_([this](const std::string& folder, const std::atomic<bool>& stop) {
          return Reload(folder, stop);
        }) {}

  // Opens the ports (health says NOT_SERVING), loads the model, warms up, says SERVING.
  absl::Status Start() {
    if (absl::Status status = credentials_.Load(); !status.ok()) return status;
    if (absl::Status status = Listen(); !status.ok()) return status;
    auto decoder = ChooseImageDecoder(options_, &metrics_, logger_);
    if (!decoder.ok()) return decoder.status();
    const absl::StatusOr<DevicePlan> plan = ChooseDevices(options_, *logger_);
    if (!plan.ok()) return plan.status();
    plan_ = *plan;
    absl::StatusOr<Model> model = LoadModel(options_, plan_, options_.model, *logger_);
    if (!model.ok()) return model.status();
    auto engine = MakeEngine(options_, *model, *std::move(decoder), &metrics_, &clock_, logger_);
    if (!engine.ok()) return engine.status();
    engine_ = *std::move(engine);
    if (options_.warm_up) {
      const absl::Time begin = clock_.Now();
      if (absl::Status status = WarmUp(*engine_, options_.modes); !status.ok()) return status;
      logger_->Info("warmed up", {{"seconds", absl::ToDoubleSeconds(clock_.Now() - begin)}});
    }
    Publish(std::move(model->facts));
    SayServing();
    reloader_.Open();
    if (options_.ready_file.empty()) return absl::OkStatus();
    return WriteReadyFile(options_.ready_file, grpc_->addresses(), metrics_address(),
                          admin_grpc_ == nullptr ? "" : admin_grpc_->addresses().front());
  }

  // Until a stop is asked for. Health follows the engine's.
  void Serve(Signals& signals) {
    bool healthy = true;
    absl::Time trimmed = clock_.Now();
    while (true) {
      switch (signals.WaitFor(kHealthPeriod)) {
        case Signals::Event::kStop:
          return;
        case Signals::Event::kReload:
          StartReload("", "SIGHUP", [](const absl::StatusOr<ReloadReport>&) {});
          break;
        case Signals::Event::kNone:
          break;
      }
      if (regions_ != nullptr) regions_->Sweep();
      if (clock_.Now() - trimmed >= kTrimPeriod) {
        TrimHeap();
        trimmed = clock_.Now();
      }
      const bool now = engine_->healthy();
      if (now == healthy) continue;
      healthy = now;
      SetServing(healthy);
      if (healthy) {
        logger_->Info("healthy again");
      } else {
        logger_->Error("a device has no slot that works: NOT_SERVING");
      }
    }
  }

  // True if every accepted image was answered.
  bool Stop() {
    const absl::Time deadline = clock_.Now() + options_.drain_timeout;
    logger_->Info("draining", {{"timeout_seconds", absl::ToDoubleSeconds(options_.drain_timeout)}});
    SetServing(false);  // first, so that balancers turn away before calls are refused
    reloader_.Close();
    service_.Drain();
    const bool drained = engine_->Drain(deadline);
    if (!drained) logger_->Error("--drain-timeout passed with images unanswered: cancelling them");
    ExitUnlessEndedWithin(std::max(deadline - clock_.Now(), absl::ZeroDuration()) + kTeardown,
                          logger_);
    health_.Close();
    grpc_->Shutdown(drained ? absl::Now() + kLastReplies : absl::Now());
    if (admin_grpc_ != nullptr) admin_grpc_->Shutdown(absl::Now() + kLastReplies);
    if (!reloader_.AwaitEnd(std::max(deadline, clock_.Now() + kLastReplies))) {
      logger_->Warning("a reload is still loading weights: exiting without it");
      std::_Exit(drained ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    logger_->Info("stopped");
    return drained;
  }

 private:
  RpcContext MakeRpcContext() {
    return {.rules = RulesOf(options_),
            .max_image_pixels = options_.max_image_pixels,
            .stream_window = static_cast<int>(options_.stream_window),
            .requests = &requests_,
            .authenticator = &credentials_.names(),
            .replies = &replies_,
            .observer = &metrics_,
            .logger = logger_,
            .tracer = tracer_.get(),
            .regions = regions_.get()};
  }

  // Null unless memory is shared.
  std::unique_ptr<RegionTable> MakeRegions() const {
    if (!options_.shared_memory) return nullptr;
    return std::make_unique<RegionTable>(RegionLimits{.regions = options_.shared_memory_regions,
                                                      .bytes = options_.shared_memory_bytes,
                                                      .idle = options_.shared_memory_idle,
                                                      .prefix = options_.shared_memory_prefix},
                                         &clock_);
  }

  void OnStalledReply(std::string_view why) {
    metrics_.OnStalledReply();
    logger_->Warning("a client did not take its replies: its call was given up",
                     {{"bound", why == "time" ? "--reply-timeout" : "--reply-memory"}});
  }

  std::vector<std::string> ServiceNames() const {
    std::vector<std::string> names = {v1::VisionEncoder::service_full_name()};
    if (options_.kserve) names.push_back(inference::GRPCInferenceService::service_full_name());
    return names;
  }

  absl::Status Listen() {
    std::vector<grpc::Service*> services = {&service_, &shared_memory_, &health_};
    if (options_.kserve) services.push_back(&kserve_);
    auto grpc = GrpcServer::Start({.listen = options_.listen,
                                   .memory = options_.grpc_memory,
                                   .max_image_bytes = options_.max_image_bytes,
                                   .reflection = options_.reflection,
                                   .tls = credentials_.tls(),
                                   .authenticator = credentials_.authenticator(),
                                   .connections = ConnectionOptionsOf(options_),
                                   .observer = &metrics_},
                                  services);
    if (!grpc.ok()) {
      return {grpc.status().code(), "--listen: " + std::string(grpc.status().message())};
    }
    grpc_ = *std::move(grpc);
    for (const std::string& address : grpc_->addresses()) {
      logger_->Info("listening", {{"for", "grpc"}, {"address", address}});
    }
    if (absl::Status status = ListenForAdmin(); !status.ok()) return status;
    credentials_.WarnOfExposure(grpc_->exposed());
    if (options_.metrics_listen.empty()) return absl::OkStatus();
    auto exposition = Exposition::Start(
        options_.metrics_listen, {metrics_.collectable(), std::make_shared<ProcessMetrics>(),
                                  memory_, gpus_, std::make_shared<TraceMetrics>(exporter_.get()),
                                  std::make_shared<SharedMemoryMetrics>(regions_.get())});
    if (!exposition.ok()) {
      return {exposition.status().code(),
              "--metrics-listen: " + std::string(exposition.status().message())};
    }
    exposition_ = *std::move(exposition);
    logger_->Info("listening", {{"for", "metrics"}, {"address", metrics_address()}});
    return absl::OkStatus();
  }

  // A server of its own: what encodes is never reached there, nor this from where images arrive.
  absl::Status ListenForAdmin() {
    if (options_.admin_listen.empty()) return absl::OkStatus();
    auto grpc = GrpcServer::Start({.listen = {options_.admin_listen},
                                   .memory = kAdminMemory,
                                   .max_image_bytes = 0,
                                   .reflection = options_.reflection,
                                   .tls = credentials_.tls(),
                                   .authenticator = credentials_.operators(),
                                   .connections = ConnectionOptionsOf(options_)},
                                  {&admin_});
    if (!grpc.ok()) {
      return {grpc.status().code(), "--admin-listen: " + std::string(grpc.status().message())};
    }
    admin_grpc_ = *std::move(grpc);
    logger_->Info("listening", {{"for", "admin"}, {"address", admin_grpc_->addresses().front()}});
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

  // What calls, metrics and the next reload are told of the model that new images are encoded with. At
  // the start, then on the reload's thread.
  void Publish(ModelFacts facts) {
    const v1::ModelInfo& info = facts.info;
    WarnIfSynthetic(info);
    memory_->SetBackends(facts.Backends());
    if (exposition_ != nullptr) gpus_->SetDevices(GpusOf(facts));
    metrics_.SetBuildInfo(info.version(), info.commit(), info.device(),
                          std::string(Name(plan_.compute)));
    metrics_.SetModelInfo(info.model(), info.weights_fingerprint(), info.synthetic());
    service_.SetServing(std::make_shared<const Serving>(Serving{WithClientLimits(engine_), info}));
    model_ = std::move(facts);
  }

  void SayServing() {
    metrics_.StartCounting();
    SetServing(engine_->healthy());
    const double age = ProcessAge();
    metrics_.SetStartDuration(age);
    logger_->Info("serving", {{"device", model_.info.device()},
                              {"version", kBuildVersion},
                              {"commit", kBuildCommit},
                              {"start_seconds", age}});
  }

  // Whoever asks for it, a reload is counted and logged.
  void StartReload(const std::string& folder, std::string by, Reloader::Done done) {
    reloader_.Start(folder, [this, by = std::move(by),
                             done = std::move(done)](const absl::StatusOr<ReloadReport>& report) {
      metrics_.OnReload(ReloadResultOf(report.status()));
      if (report.ok()) {
        logger_->Info("reloaded", {{"by", by},
                                   {"folder", report->folder},
                                   {"old_fingerprint", report->old_fingerprint},
                                   {"new_fingerprint", report->new_fingerprint},
                                   {"seconds", report->seconds}});
      } else {
        logger_->Error("reload refused: the weights stay as they were",
                       {{"by", by}, {"reason", report.status().ToString()}});
      }
      done(report);
    });
  }

  // On the reload's thread, the only one that writes model_ once the server is up.
  absl::StatusOr<ReloadReport> Reload(const std::string& folder, const std::atomic<bool>& stop) {
    const absl::Time begin = clock_.Now();
    ReloadReport report;
    report.folder = folder.empty() ? model_.folder : folder;
    report.old_fingerprint = model_.info.weights_fingerprint();
    logger_->Info("reloading", {{"folder", report.folder}, {"serving", report.old_fingerprint}});
    absl::StatusOr<Model> next =
        LoadModelBeside(options_, plan_, report.folder, model_, stop, *logger_);
    if (!next.ok()) return next.status();
    report.new_fingerprint = next->facts.info.weights_fingerprint();
    absl::Status status = engine_->SwapBackends(std::move(next->devices), std::move(next->special),
                                                [this, &next] { Publish(std::move(next->facts)); });
    if (!status.ok()) return status;
    report.seconds = absl::ToDoubleSeconds(clock_.Now() - begin);
    return report;
  }

  // What calls use: the engine, behind the limits of each client.
  std::shared_ptr<Engine> WithClientLimits(std::shared_ptr<Engine> engine) {
    if (!ClientLimitsOf(options_).any()) return engine;
    return std::make_shared<LimitedEngine>(client_limits_, std::move(engine), &metrics_);
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
  const SteadyClock clock_;
  const std::unique_ptr<OtlpExporter> exporter_;  // null: no traces
  const std::unique_ptr<const Tracer> tracer_;    // null: no traces
  Metrics metrics_;
  const std::shared_ptr<BackendMemory> memory_ = std::make_shared<BackendMemory>();
  const std::shared_ptr<GpuMonitor> gpus_;
  const std::shared_ptr<ClientLimits> client_limits_ =
      std::make_shared<ClientLimits>(ClientLimitsOf(options_), &clock_);
  DevicePlan plan_;
  std::shared_ptr<ServingEngine> engine_;
  ModelFacts model_;
  Credentials credentials_;
  PendingReplies replies_;
  RequestLimit requests_;
  const std::unique_ptr<RegionTable> regions_;
  VisionEncoderService service_;
  SharedMemoryService shared_memory_;
  kserve::InferenceService kserve_;
  HealthService health_;
  std::unique_ptr<Exposition> exposition_;
  AdminService admin_;
  Reloader reloader_;  // its thread ends before what it changes goes
  std::unique_ptr<GrpcServer> grpc_, admin_grpc_;
};

// Nothing of ours throws, but allocation and the start of a thread do.
absl::Status StartOf(Server& server) {
  try {
    return server.Start();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

int Run(const ServerOptions& options) {
  SetUpHeap();
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
  if (absl::Status status = StartOf(server); !status.ok()) {
    logger->Error("cannot start", {{"reason", std::string(status.message())}});
    return EXIT_FAILURE;
  }
  signals->HandOver();
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
