#include "server/metrics/metrics.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "encoder/model/geometry.h"

namespace deepencoder {
namespace {

constexpr const char* kMissHit[] = {"miss", "hit"};

prometheus::Family<prometheus::Counter>& CounterFamily(prometheus::Registry& registry,
                                                       MetricId id) {
  const MetricSpec& spec = SpecOf(id);
  return prometheus::BuildCounter().Name(spec.name).Help(spec.help).Register(registry);
}

prometheus::Family<prometheus::Gauge>& GaugeFamily(prometheus::Registry& registry, MetricId id) {
  const MetricSpec& spec = SpecOf(id);
  return prometheus::BuildGauge().Name(spec.name).Help(spec.help).Register(registry);
}

prometheus::Family<prometheus::Histogram>& HistogramFamily(prometheus::Registry& registry,
                                                           MetricId id) {
  const MetricSpec& spec = SpecOf(id);
  return prometheus::BuildHistogram().Name(spec.name).Help(spec.help).Register(registry);
}

prometheus::Histogram* AddHistogram(prometheus::Family<prometheus::Histogram>& family,
                                    const prometheus::Labels& labels, MetricId id) {
  return &family.Add(labels, BoundsOf(SpecOf(id).buckets));
}

template <typename Enum>
size_t Index(Enum value) {
  return static_cast<size_t>(value);
}

// Index in kViewSides; the end for a side that is none.
size_t SideIndex(int side) {
  return std::find(std::begin(kViewSides), std::end(kViewSides), side) - std::begin(kViewSides);
}

// A code out of the table is counted as UNKNOWN.
size_t CodeIndex(grpc::StatusCode code) {
  return code >= 0 && code < kStatusCodes ? code : grpc::StatusCode::UNKNOWN;
}

}  // namespace

Metrics::Metrics() : registry_(std::make_shared<prometheus::Registry>()) {
  MakeCallSeries();
  MakeEngineSeries();
  MakeConnectionSeries();
  serving_ = &GaugeFamily(*registry_, MetricId::kServing).Add({});
  start_duration_ = &GaugeFamily(*registry_, MetricId::kStartDuration).Add({});
  build_info_family_ = &GaugeFamily(*registry_, MetricId::kBuildInfo);
  model_info_family_ = &GaugeFamily(*registry_, MetricId::kModelInfo);
  auto& reloads = CounterFamily(*registry_, MetricId::kReloads);
  for (const ReloadResult result : kReloadResults) {
    reloads_[Index(result)] = &reloads.Add({{"result", std::string(Name(result))}});
  }
}

void Metrics::MakeCallSeries() {
  auto& requests = CounterFamily(*registry_, MetricId::kRequests);
  auto& durations = HistogramFamily(*registry_, MetricId::kRequestDuration);
  auto& active = GaugeFamily(*registry_, MetricId::kCallsActive);
  for (const Method method : kMethods) {
    const prometheus::Labels labels = {{"method", std::string(Name(method))}};
    request_duration_[Index(method)] = AddHistogram(durations, labels, MetricId::kRequestDuration);
    calls_active_[Index(method)] = &active.Add(labels);
    for (int code = 0; code < kStatusCodes; ++code) {
      requests_[Index(method)][code] =
          &requests.Add({{"method", std::string(Name(method))},
                         {"code", std::string(Name(static_cast<grpc::StatusCode>(code)))}});
    }
  }
  auto& stream_images = CounterFamily(*registry_, MetricId::kStreamImages);
  for (int code = 0; code < kStatusCodes; ++code) {
    stream_images_[code] =
        &stream_images.Add({{"code", std::string(Name(static_cast<grpc::StatusCode>(code)))}});
  }
}

void Metrics::MakeEngineSeries() {
  prometheus::Registry& registry = *registry_;
  auto& images = CounterFamily(registry, MetricId::kImages);
  auto& stages = HistogramFamily(registry, MetricId::kStageDuration);
  auto& dropped = CounterFamily(registry, MetricId::kDropped);
  for (size_t mode = 0; mode < kModeCount; ++mode) {
    const std::string mode_name(SpecOf(static_cast<Mode>(mode)).name);
    images_[mode] = &images.Add({{"mode", mode_name}});
    for (size_t stage = 0; stage < kStageCount; ++stage) {
      const std::string stage_name(Name(static_cast<Stage>(stage)));
      stage_duration_[stage][mode] = AddHistogram(
          stages, {{"stage", stage_name}, {"mode", mode_name}}, MetricId::kStageDuration);
    }
  }
  for (size_t reason = 0; reason < kDropCount; ++reason) {
    for (size_t stage = 0; stage < kStageCount; ++stage) {
      dropped_[reason][stage] =
          &dropped.Add({{"reason", std::string(Name(static_cast<DropReason>(reason)))},
                        {"before", std::string(Name(static_cast<Stage>(stage)))}});
    }
  }
  auto& rejected = CounterFamily(registry, MetricId::kRejected);
  for (size_t reason = 0; reason < kRejectCount; ++reason) {
    rejected_[reason] =
        &rejected.Add({{"reason", std::string(Name(static_cast<RejectReason>(reason)))}});
  }
  auto& worker_ends = CounterFamily(registry, MetricId::kDecodeWorkerEnds);
  for (const WorkerEnd end : kWorkerEnds) {
    decode_worker_ends_[Index(end)] = &worker_ends.Add({{"reason", std::string(Name(end))}});
  }
  auto& batch_sizes = HistogramFamily(registry, MetricId::kBatchSize);
  auto& padding = CounterFamily(registry, MetricId::kBatchPadding);
  for (size_t side = 0; side < kSideCount; ++side) {
    const prometheus::Labels labels = {{"side", std::to_string(kViewSides[side])}};
    batch_size_[side] = AddHistogram(batch_sizes, labels, MetricId::kBatchSize);
    batch_padding_[side] = &padding.Add(labels);
  }
  batch_compute_family_ = &HistogramFamily(registry, MetricId::kBatchCompute);
  auto& launches = CounterFamily(registry, MetricId::kGraphLaunches);
  auto& cache = CounterFamily(registry, MetricId::kCacheRequests);
  for (size_t hit = 0; hit < 2; ++hit) {
    graph_launches_[hit] = &launches.Add({{"result", kMissHit[hit]}});
    cache_requests_[hit] = &cache.Add({{"result", kMissHit[hit]}});
  }
  tokens_ = &CounterFamily(registry, MetricId::kTokens).Add({});
  for (const auto& [gauge, id] : {std::pair{&queue_items_, MetricId::kQueueItems},
                                  {&queue_bytes_, MetricId::kQueueBytes},
                                  {&in_flight_, MetricId::kInFlight},
                                  {&in_flight_bytes_, MetricId::kInFlightBytes},
                                  {&cache_bytes_, MetricId::kCacheBytes},
                                  {&cache_entries_, MetricId::kCacheEntries},
                                  {&decode_busy_, MetricId::kDecodeBusy},
                                  {&decode_threads_, MetricId::kDecodeThreads},
                                  {&decode_workers_, MetricId::kDecodeWorkers}}) {
    *gauge = &GaugeFamily(registry, id).Add({});
  }
}

void Metrics::MakeConnectionSeries() {
  auto& failures = CounterFamily(*registry_, MetricId::kAuthFailures);
  for (int i = 0; i < kAuthFailureKinds; ++i) {
    auth_failures_[i] = &failures.Add({{"reason", std::string(Name(static_cast<AuthFailure>(i)))}});
  }
  auto& refused = CounterFamily(*registry_, MetricId::kConnectionsRefused);
  for (int i = 0; i < kConnectionRefusals; ++i) {
    connections_refused_[i] =
        &refused.Add({{"reason", std::string(Name(static_cast<ConnectionRefusal>(i)))}});
  }
  stalled_replies_ = &CounterFamily(*registry_, MetricId::kStalledReplies).Add({});
  connections_ = &GaugeFamily(*registry_, MetricId::kConnections).Add({});
  certificate_expiry_ = &GaugeFamily(*registry_, MetricId::kCertificateExpiry).Add({});
  credential_reloads_ = &CounterFamily(*registry_, MetricId::kCredentialReloads);
  for (const char* what : {"tls", "tokens", "admin_tokens"}) {
    for (const char* result : {"ok", "failed"}) {
      credential_reloads_->Add({{"what", what}, {"result", result}});
    }
  }
}

void Metrics::OnCredentialReload(const std::string& what, bool ok) {
  credential_reloads_->Add({{"what", what}, {"result", ok ? "ok" : "failed"}}).Increment();
}

void Metrics::SetCertificateExpiry(double unix_seconds) { certificate_expiry_->Set(unix_seconds); }

void Metrics::SetServing(bool serving) { serving_->Set(serving ? 1 : 0); }

void Metrics::SetStartDuration(double seconds) { start_duration_->Set(seconds); }

void Metrics::SetBuildInfo(const std::string& version, const std::string& commit,
                           const std::string& device, const std::string& compute_dtype) {
  build_info_family_
      ->Add({{"version", version},
             {"commit", commit},
             {"device", device},
             {"compute_dtype", compute_dtype}})
      .Set(1);
}

void Metrics::SetModelInfo(const std::string& model, const std::string& weights_fingerprint,
                           bool synthetic) {
  const MutexLock lock(mutex_);
  if (model_info_ != nullptr) model_info_family_->Remove(model_info_);
  model_info_ = &model_info_family_->Add({{"model", model},
                                          {"weights_fingerprint", weights_fingerprint},
                                          {"synthetic", synthetic ? "true" : "false"}});
  model_info_->Set(1);
}

void Metrics::OnReload(ReloadResult result) { reloads_[Index(result)]->Increment(); }

void Metrics::OnStage(Stage stage, Mode mode, double seconds) {
  if (!counting()) return;
  stage_duration_[Index(stage)][Index(mode)]->Observe(seconds);
}

void Metrics::OnBatch(int device, int side, int size, int bucket, GraphUse graph,
                      double compute_seconds) {
  const size_t index = SideIndex(side);
  if (index == kSideCount || !counting()) return;
  batch_size_[index]->Observe(size);
  if (bucket > size) batch_padding_[index]->Increment(bucket - size);
  if (graph != GraphUse::kNone) graph_launches_[graph == GraphUse::kHit ? 1 : 0]->Increment();
  BatchCompute(device, index).Observe(compute_seconds);
}

prometheus::Histogram& Metrics::BatchCompute(int device, size_t side_index) {
  const MutexLock lock(mutex_);
  const auto [at, is_new] = batch_compute_.try_emplace(device);
  if (is_new) {
    for (size_t side = 0; side < kSideCount; ++side) {
      at->second[side] = AddHistogram(
          *batch_compute_family_,
          {{"device", std::to_string(device)}, {"side", std::to_string(kViewSides[side])}},
          MetricId::kBatchCompute);
    }
  }
  return *at->second[side_index];
}

void Metrics::OnQueue(int64_t items, int64_t bytes) {
  queue_items_->Set(static_cast<double>(items));
  queue_bytes_->Set(static_cast<double>(bytes));
}

void Metrics::OnInFlight(int64_t images, int64_t bytes) {
  in_flight_->Set(static_cast<double>(images));
  in_flight_bytes_->Set(static_cast<double>(bytes));
}

void Metrics::OnReject(RejectReason reason) { rejected_[Index(reason)]->Increment(); }

void Metrics::OnDrop(DropReason reason, Stage before) {
  dropped_[Index(reason)][Index(before)]->Increment();
}

void Metrics::OnImage(Mode mode, int rows) {
  if (!counting()) return;
  images_[Index(mode)]->Increment();
  tokens_->Increment(rows);
}

void Metrics::OnCache(bool hit) {
  if (!counting()) return;
  cache_requests_[hit ? 1 : 0]->Increment();
}

void Metrics::OnCacheSize(int64_t bytes, int64_t entries) {
  cache_bytes_->Set(static_cast<double>(bytes));
  cache_entries_->Set(static_cast<double>(entries));
}

void Metrics::OnDecodePool(int busy, int threads) {
  decode_busy_->Set(busy);
  decode_threads_->Set(threads);
}

void Metrics::OnDecodeWorkers(int alive) { decode_workers_->Set(alive); }

void Metrics::OnDecodeWorkerEnd(WorkerEnd end) { decode_worker_ends_[Index(end)]->Increment(); }

void Metrics::OnCallStarted(Method method) { calls_active_[Index(method)]->Increment(); }

void Metrics::OnCallEnded(Method method, grpc::StatusCode code) {
  // In this order: whoever sees no call under way sees all of them counted.
  requests_[Index(method)][CodeIndex(code)]->Increment();
  calls_active_[Index(method)]->Decrement();
}

void Metrics::OnAnswered(Method method, double seconds) {
  request_duration_[Index(method)]->Observe(seconds);
}

void Metrics::OnStreamImage(grpc::StatusCode code) { stream_images_[CodeIndex(code)]->Increment(); }

void Metrics::OnAuthFailure(AuthFailure failure) { auth_failures_[Index(failure)]->Increment(); }

void Metrics::OnConnections(int64_t open) { connections_->Set(static_cast<double>(open)); }

void Metrics::OnConnectionRefused(ConnectionRefusal why) {
  connections_refused_[Index(why)]->Increment();
}

void Metrics::OnStalledReply() { stalled_replies_->Increment(); }

}  // namespace deepencoder
