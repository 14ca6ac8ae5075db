// The parts of a running server, and their start, work and end.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/credentials.h"
#include "server/engine/client_limits.h"
#include "server/engine/serving_engine.h"
#include "server/kserve/inference_service.h"
#include "server/metrics/device_metrics.h"
#include "server/metrics/exposition.h"
#include "server/metrics/gpu_monitor.h"
#include "server/metrics/metrics.h"
#include "server/model_loader.h"
#include "server/options.h"
#include "server/reloader.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/health_service.h"
#include "server/rpc/pending_replies.h"
#include "server/rpc/request_limit.h"
#include "server/rpc/shared_memory_service.h"
#include "server/rpc/vision_encoder_service.h"
#include "server/shared_memory/region_table.h"
#include "server/signals.h"
#include "server/trace/otlp_exporter.h"
#include "server/trace/tracer.h"

namespace deepencoder {

// Members are destroyed from the last to the first: listeners, then the services behind them, then the
// engine, then what hears it.
class Server {
 public:
  // `options` and `logger` must outlive this; `exporter` may be null.
  Server(const ServerOptions& options, const Logger* logger,
         std::unique_ptr<OtlpExporter> exporter);
  // Calls that are still open are ended.
  ~Server();

  // Opens the ports (health says NOT_SERVING), loads the model, warms up, says SERVING: from then on a stop
  // that `signals` hears is Serve's. Errors name the option that cannot be followed. To be called once.
  absl::Status Start(Signals& signals);

  // Until a stop is asked for. Health follows the engine's.
  void Serve(Signals& signals);

  // NOT_SERVING, then drains: to be called once, after Serve. True if every accepted image was answered.
  bool Stop();

 private:
  RpcContext MakeRpcContext();

  // Null unless memory is shared.
  std::unique_ptr<RegionTable> MakeRegions() const;

  void OnStalledReply(std::string_view why);

  std::vector<std::string> ServiceNames() const;

  absl::Status Listen();

  // A server of its own: what encodes is never reached there, nor this from where images arrive.
  absl::Status ListenForAdmin();

  void WarnIfSynthetic(const v1::ModelInfo& info) const;

  // What calls, metrics and the next reload are told of the model that new images are encoded with. At
  // the start, then on the reload's thread.
  void Publish(ModelFacts facts);

  void SayServing();

  // Whoever asks for it, a reload is counted and logged.
  void StartReload(const std::string& folder, std::string by, Reloader::Done done);

  // On the reload's thread, the only one that writes model_ once the server is up.
  absl::StatusOr<ReloadReport> Reload(const std::string& folder, const std::atomic<bool>& stop);

  // What calls use: the engine, behind the limits of each client.
  std::shared_ptr<Engine> WithClientLimits(std::shared_ptr<Engine> engine);

  void SetServing(bool serving);

  std::string metrics_address() const;

  const ServerOptions& options_;
  const Logger* const logger_;
  const SteadyClock clock_;
  const std::unique_ptr<OtlpExporter> exporter_;  // null: no traces
  const std::unique_ptr<const Tracer> tracer_;    // null: no traces
  Metrics metrics_;
  const std::shared_ptr<BackendMemory> memory_ = std::make_shared<BackendMemory>();
  const std::shared_ptr<GpuMonitor> gpus_;
  const std::shared_ptr<ClientLimits> client_limits_;
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

}  // namespace deepencoder
