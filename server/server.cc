#include "server/server.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "encoder/version/version.h"
#include "server/engine/decode_pool.h"
#include "server/engine/limited_engine.h"
#include "server/exit_timer.h"
#include "server/image_decoder_choice.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/shared_memory_metrics.h"
#include "server/metrics/trace_metrics.h"
#include "server/ready_file.h"
#include "server/warm_up.h"

namespace deepencoder {
namespace {

// How often the engine is asked whether it is healthy.
constexpr absl::Duration kHealthPeriod = absl::Seconds(1);
// For replies that are on their way when the engine has drained.
constexpr absl::Duration kLastReplies = absl::Seconds(5);
// For messages of the admin service, which are short; gRPC takes no less.
constexpr int64_t kAdminMemory = int64_t{16} << 20;
// Whose descriptors are kept free whatever comes to --listen.
constexpr int64_t kAdminConnections = 32;
// A decode worker's socket, and the memory of its file and of its picture.
constexpr int64_t kWorkerDescriptors = 3;
// From the drain's end to the process': the last replies, then what the engine and the devices hold is freed.
constexpr absl::Duration kTeardown = absl::Seconds(8);

std::vector<GpuAddress> GpusOf(const ModelFacts& model) {
  std::vector<GpuAddress> gpus;
  for (const std::weak_ptr<const Backend>& weak : model.Backends()) {
    if (const std::shared_ptr<const Backend> backend = weak.lock()) {
      gpus.push_back({backend->info().device, backend->info().pci_bus_id});
    }
  }
  return gpus;
}

absl::Duration OrInfinite(absl::Duration bound) {
  return bound == absl::ZeroDuration() ? absl::InfiniteDuration() : bound;
}

// Beside connections to --listen and what every server has.
int64_t OtherDescriptors(const ServerOptions& options) {
  int64_t count = 0;
  if (options.decode_sandbox != DecodeSandbox::kOff) {
    count += kWorkerDescriptors * DecodeThreadCount(static_cast<int>(options.decode_threads));
  }
  if (options.shared_memory) count += options.shared_memory_regions;
  if (!options.admin_listen.empty()) count += kAdminConnections;
  return count;
}

ConnectionOptions ConnectionOptionsOf(const ServerOptions& options) {
  return {.max_connections = options.max_connections,
          .other_descriptors = OtherDescriptors(options),
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

}  // namespace

Server::Server(const ServerOptions& options, const Logger* logger,
               std::unique_ptr<OtlpExporter> exporter)
    : options_(options),
      logger_(logger),
      exporter_(std::move(exporter)),
      tracer_(exporter_ == nullptr
                  ? nullptr
                  : std::make_unique<Tracer>(options.trace_ratio, exporter_.get())),
      gpus_(std::make_shared<GpuMonitor>(GpuMonitorOptions{.period = options.gpu_metrics_period},
                                         &clock_, logger)),
      client_limits_(std::make_shared<ClientLimits>(ClientLimitsOf(options_), &clock_)),
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

Server::~Server() {
  // After a start that failed, gRPC would wait for them without end.
  health_.Close();
  for (GrpcServer* grpc : {grpc_.get(), admin_grpc_.get()}) {
    if (grpc != nullptr) grpc->Shutdown(absl::Now());
  }
}

absl::Status Server::Start(Signals& signals) {
  if (absl::Status status = RemoveReadyFile(options_.ready_file); !status.ok()) return status;
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
  signals.HandOver();  // first: who hears SERVING may send an image, which a stop must not drop
  SayServing();
  reloader_.Open();
  if (options_.ready_file.empty()) return absl::OkStatus();
  return WriteReadyFile(options_.ready_file, grpc_->addresses(), metrics_address(),
                        admin_grpc_ == nullptr ? "" : admin_grpc_->addresses().front());
}

void Server::Serve(Signals& signals) {
  bool healthy = true;
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

bool Server::Stop() {
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

RpcContext Server::MakeRpcContext() {
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

std::unique_ptr<RegionTable> Server::MakeRegions() const {
  if (!options_.shared_memory) return nullptr;
  return std::make_unique<RegionTable>(RegionLimits{.regions = options_.shared_memory_regions,
                                                    .bytes = options_.shared_memory_bytes,
                                                    .idle = options_.shared_memory_idle,
                                                    .prefix = options_.shared_memory_prefix},
                                       &clock_);
}

void Server::OnStalledReply(std::string_view why) {
  metrics_.OnStalledReply();
  logger_->Warning("a client did not take its replies: its call was given up",
                   {{"bound", why == "time" ? "--reply-timeout" : "--reply-memory"}});
}

std::vector<std::string> Server::ServiceNames() const {
  std::vector<std::string> names = {v1::VisionEncoder::service_full_name()};
  if (options_.kserve) names.push_back(inference::GRPCInferenceService::service_full_name());
  return names;
}

absl::Status Server::Listen() {
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
      options_.metrics_listen, {metrics_.collectable(), std::make_shared<ProcessMetrics>(), memory_,
                                gpus_, std::make_shared<TraceMetrics>(exporter_.get()),
                                std::make_shared<SharedMemoryMetrics>(regions_.get())});
  if (!exposition.ok()) {
    return {exposition.status().code(),
            "--metrics-listen: " + std::string(exposition.status().message())};
  }
  exposition_ = *std::move(exposition);
  logger_->Info("listening", {{"for", "metrics"}, {"address", metrics_address()}});
  return absl::OkStatus();
}

absl::Status Server::ListenForAdmin() {
  if (options_.admin_listen.empty()) return absl::OkStatus();
  ConnectionOptions connections = ConnectionOptionsOf(options_);
  connections.max_connections = std::min(connections.max_connections, kAdminConnections);
  auto grpc = GrpcServer::Start({.listen = {options_.admin_listen},
                                 .memory = kAdminMemory,
                                 .max_image_bytes = 0,
                                 .reflection = options_.reflection,
                                 .tls = credentials_.tls(),
                                 .authenticator = credentials_.operators(),
                                 .connections = connections},
                                {&admin_});
  if (!grpc.ok()) {
    return {grpc.status().code(), "--admin-listen: " + std::string(grpc.status().message())};
  }
  admin_grpc_ = *std::move(grpc);
  logger_->Info("listening", {{"for", "admin"}, {"address", admin_grpc_->addresses().front()}});
  return absl::OkStatus();
}

void Server::WarnIfSynthetic(const v1::ModelInfo& info) const {
  if (!info.synthetic()) return;
  logger_->Warning("******************************************************************");
  logger_->Warning("SYNTHETIC CHECKPOINT: the weights are made up, the embeddings mean");
  logger_->Warning("nothing. Give --model the real DeepSeek-OCR checkpoint for real use.",
                   {{"fingerprint", info.weights_fingerprint()}});
  logger_->Warning("******************************************************************");
}

void Server::Publish(ModelFacts facts) {
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

void Server::SayServing() {
  metrics_.StartCounting();
  SetServing(engine_->healthy());
  const double age = ProcessAge();
  metrics_.SetStartDuration(age);
  logger_->Info("serving", {{"device", model_.info.device()},
                            {"version", kBuildVersion},
                            {"commit", kBuildCommit},
                            {"start_seconds", age}});
}

void Server::StartReload(const std::string& folder, std::string by, Reloader::Done done) {
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

absl::StatusOr<ReloadReport> Server::Reload(const std::string& folder,
                                            const std::atomic<bool>& stop) {
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

std::shared_ptr<Engine> Server::WithClientLimits(std::shared_ptr<Engine> engine) {
  if (!ClientLimitsOf(options_).any()) return engine;
  return std::make_shared<LimitedEngine>(client_limits_, std::move(engine), &metrics_);
}

void Server::SetServing(bool serving) {
  health_.SetServing(serving);
  metrics_.SetServing(serving);
}

std::string Server::metrics_address() const {
  return exposition_ == nullptr ? "" : exposition_->address();
}

}  // namespace deepencoder
