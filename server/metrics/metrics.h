// The metrics that the server counts itself. Hears the engine and the calls, is collected by Prometheus.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "encoder/model/config.h"
#include "server/engine/engine.h"
#include "server/engine/mutex.h"
#include "server/metrics/metric_table.h"
#include "server/reloader.h"
#include "server/rpc/rpc_observer.h"
#include "server/sandbox/sandboxed_decoder.h"

namespace deepencoder {

// Thread-safe. Every time series with a known label is made at the start, so that counting is an atomic
// add (a short lock for histograms) and a rate over a counter that has not moved yet is 0, not absent.
class Metrics final : public EngineObserver, public RpcObserver, public SandboxObserver {
 public:
  Metrics();

  // For the exposition.
  std::shared_ptr<prometheus::Collectable> collectable() const { return registry_; }

  // Images, stages and batches before this are the server's own (warm-up) and not counted.
  void StartCounting() { counting_.store(true, std::memory_order_relaxed); }

  void SetServing(bool serving);
  void SetStartDuration(double seconds);
  void SetBuildInfo(const std::string& version, const std::string& commit,
                    const std::string& device, const std::string& compute_dtype);
  // In place of the model before.
  void SetModelInfo(const std::string& model, const std::string& weights_fingerprint,
                    bool synthetic);
  void OnReload(ReloadResult result);

  // `what` is "tls", "tokens" or "admin_tokens".
  void OnCredentialReload(const std::string& what, bool ok);
  void SetCertificateExpiry(double unix_seconds);

  // EngineObserver
  void OnStage(Stage stage, Mode mode, double seconds) override;
  void OnBatch(int device, int side, int size, int bucket, GraphUse graph,
               double compute_seconds) override;
  void OnQueue(int64_t items, int64_t bytes) override;
  void OnInFlight(int64_t images, int64_t bytes) override;
  void OnReject(RejectReason reason) override;
  void OnDrop(DropReason reason, Stage before) override;
  void OnImage(Mode mode, int rows) override;
  void OnCache(bool hit) override;
  void OnCacheSize(int64_t bytes, int64_t entries) override;
  void OnDecodePool(int busy, int threads) override;

  // SandboxObserver
  void OnDecodeWorkers(int alive) override;
  void OnDecodeWorkerEnd(WorkerEnd end) override;

  // RpcObserver
  void OnCallStarted(Method method) override;
  void OnCallEnded(Method method, grpc::StatusCode code) override;
  void OnAnswered(Method method, double seconds) override;
  void OnStreamImage(grpc::StatusCode code) override;
  void OnAuthFailure(AuthFailure failure) override;
  void OnConnections(int64_t open) override;
  void OnConnectionRefused(ConnectionRefusal why) override;
  void OnStalledReply() override;

 private:
  static constexpr size_t kModeCount = 5, kStageCount = 5, kMethodCount = std::size(kMethods),
                          kSideCount = std::size(kViewSides), kRejectCount = 9, kDropCount = 2,
                          kReloadCount = std::size(kReloadResults);
  template <typename T, size_t... kSizes>
  struct Grid;
  template <typename T, size_t kSize, size_t... kRest>
  struct Grid<T, kSize, kRest...> {
    using Type = std::array<typename Grid<T, kRest...>::Type, kSize>;
  };
  template <typename T>
  struct Grid<T> {
    using Type = T*;
  };
  template <size_t... kSizes>
  using Counters = typename Grid<prometheus::Counter, kSizes...>::Type;
  template <size_t... kSizes>
  using Gauges = typename Grid<prometheus::Gauge, kSizes...>::Type;
  template <size_t... kSizes>
  using Histograms = typename Grid<prometheus::Histogram, kSizes...>::Type;

  void MakeCallSeries();
  void MakeEngineSeries();
  void MakeConnectionSeries();
  prometheus::Histogram& BatchCompute(int device, size_t side_index);

  bool counting() const { return counting_.load(std::memory_order_relaxed); }

  const std::shared_ptr<prometheus::Registry> registry_;
  std::atomic<bool> counting_{false};
  // Calls
  Counters<kMethodCount, kStatusCodes> requests_;
  Histograms<kMethodCount> request_duration_;
  Gauges<kMethodCount> calls_active_;
  Counters<kStatusCodes> stream_images_;
  // Connections
  Counters<kAuthFailureKinds> auth_failures_;
  Counters<kConnectionRefusals> connections_refused_;
  prometheus::Counter* stalled_replies_;
  prometheus::Gauge *connections_, *certificate_expiry_;
  prometheus::Family<prometheus::Counter>* credential_reloads_;
  // Engine
  Counters<kModeCount> images_;
  prometheus::Counter* tokens_;
  Histograms<kStageCount, kModeCount> stage_duration_;
  Histograms<kSideCount> batch_size_;
  Counters<kSideCount> batch_padding_;
  prometheus::Family<prometheus::Histogram>* batch_compute_family_;
  Mutex mutex_;
  std::map<int, Histograms<kSideCount>> batch_compute_ ABSL_GUARDED_BY(mutex_);  // by device
  prometheus::Gauge *queue_items_, *queue_bytes_, *in_flight_, *in_flight_bytes_;
  Counters<2> graph_launches_;  // miss, hit
  Counters<kRejectCount> rejected_;
  Counters<kDropCount, kStageCount> dropped_;
  Counters<2> cache_requests_;  // miss, hit
  prometheus::Gauge *cache_bytes_, *cache_entries_, *decode_busy_, *decode_threads_,
      *decode_workers_;
  Counters<std::size(kWorkerEnds)> decode_worker_ends_;
  // Server
  prometheus::Gauge *serving_, *start_duration_;
  prometheus::Family<prometheus::Gauge>* build_info_family_;
  prometheus::Family<prometheus::Gauge>* model_info_family_;
  prometheus::Gauge* model_info_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Counters<kReloadCount> reloads_;
};

}  // namespace deepencoder
