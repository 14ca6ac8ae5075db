#include "server/metrics/metric_table.h"

#include <cstddef>
#include <iterator>

namespace deepencoder {
namespace {

using enum MetricType;
using enum BucketSet;

// In the order of MetricId. clang-format off: a row is a line or two.
// clang-format off
constexpr MetricSpec kTable[] = {
    // ---- calls
    {MetricId::kRequests, "deepencoder_requests_total", kCounter, "", "method,code", kNone,
     "Calls that ended, by gRPC status. A stream of EncodeImages is one call, and so is a ModelInfer (KServe) of any batch."},
    {MetricId::kRequestDuration, "deepencoder_request_duration_seconds", kHistogram, "seconds", "method", kSeconds,
     "From a request's arrival to its reply, whatever the status; of EncodeImages for each image."},
    {MetricId::kCallsActive, "deepencoder_calls_active", kGauge, "", "method", kNone,
     "Calls under way."},
    {MetricId::kStreamImages, "deepencoder_stream_images_total", kCounter, "", "code", kNone,
     "Images of EncodeImages calls that were answered, by the code of their answer."},
    {MetricId::kImages, "deepencoder_images_total", kCounter, "", "mode", kNone,
     "Images encoded and answered."},
    {MetricId::kTokens, "deepencoder_tokens_total", kCounter, "", "", kNone,
     "Rows of embeddings in the replies."},
    // ---- stages and batches
    {MetricId::kStageDuration, "deepencoder_stage_duration_seconds", kHistogram, "seconds", "stage,mode", kSeconds,
     "Time of an image in a stage: decode (file to pixels), views (pixels to views), queue (waiting for a slot), "
     "compute (encoder), assemble (rows to reply)."},
    {MetricId::kBatchSize, "deepencoder_batch_size", kHistogram, "views", "side", kBatch,
     "Views in a batch, padding not counted, by the view's side in pixels."},
    {MetricId::kBatchPadding, "deepencoder_batch_padding_total", kCounter, "views", "side", kNone,
     "Views computed only to fill a batch bucket."},
    {MetricId::kBatchCompute, "deepencoder_batch_compute_seconds", kHistogram, "seconds", "device,side", kSeconds,
     "Time a batch took on the device."},
    {MetricId::kQueueItems, "deepencoder_queue_items", kGauge, "views", "", kNone,
     "Views waiting for a slot."},
    {MetricId::kQueueBytes, "deepencoder_queue_bytes", kGauge, "bytes", "", kNone,
     "Memory of the views waiting for a slot."},
    {MetricId::kInFlight, "deepencoder_in_flight", kGauge, "images", "", kNone,
     "Images accepted and not yet answered."},
    {MetricId::kInFlightBytes, "deepencoder_in_flight_bytes", kGauge, "bytes", "", kNone,
     "Bytes reserved for images accepted and not yet answered."},
    {MetricId::kGraphLaunches, "deepencoder_graph_launches_total", kCounter, "", "result", kNone,
     "Batches by whether a captured CUDA graph ran them: hit or miss. The CPU has no graphs: neither is counted."},
    // ---- refusals
    {MetricId::kRejected, "deepencoder_rejected_total", kCounter, "", "reason", kNone,
     "Images refused on arrival because a bound was reached (images, views, bytes; requests: a whole call, or an image "
     "of a stream that had none at work), a client was over its own limit (client_images, client_rate, "
     "client_bytes), or the server was draining or unhealthy."},
    {MetricId::kDropped, "deepencoder_dropped_total", kCounter, "", "reason,before", kNone,
     "Accepted images given up because the deadline had passed, or was likely to, or the client had gone, by the "
     "stage not begun."},
    {MetricId::kAuthFailures, "deepencoder_auth_failures_total", kCounter, "", "reason", kNone,
     "Calls refused since their bearer token was missing, malformed or unknown. They are in no other metric."},
    // ---- connections
    {MetricId::kConnections, "deepencoder_connections", kGauge, "", "", kNone,
     "Open connections of the gRPC ports, at most a second old."},
    {MetricId::kConnectionsRefused, "deepencoder_connections_refused_total", kCounter, "", "reason", kNone,
     "Connections closed as soon as they came: --max-connections (limit) or --max-connections-per-address (address) was "
     "reached, or the process had no descriptor left."},
    {MetricId::kStalledReplies, "deepencoder_stalled_replies_total", kCounter, "", "", kNone,
     "Calls given up since their client did not take its replies (--reply-timeout, --reply-memory)."},
    {MetricId::kCredentialReloads, "deepencoder_credential_reloads_total", kCounter, "", "what,result", kNone,
     "Changed files of TLS (tls), callers' or operators' tokens (tokens, admin_tokens) that were read again: ok, or failed, when what was there stays in force."},
    {MetricId::kCertificateExpiry, "deepencoder_certificate_expiry_seconds", kGauge, "seconds", "", kNone,
     "When the certificate of the gRPC ports expires, in seconds since 1970-01-01 UTC; 0 without TLS."},
    // ---- cache and decode pool
    {MetricId::kCacheRequests, "deepencoder_cache_requests_total", kCounter, "", "result", kNone,
     "Look-ups in the result cache: hit or miss."},
    {MetricId::kCacheBytes, "deepencoder_cache_bytes", kGauge, "bytes", "", kNone,
     "Results held by the cache."},
    {MetricId::kCacheEntries, "deepencoder_cache_entries", kGauge, "", "", kNone,
     "Results held by the cache."},
    {MetricId::kDecodeBusy, "deepencoder_decode_threads_busy", kGauge, "", "", kNone,
     "Threads of the decode pool that are at work."},
    {MetricId::kDecodeThreads, "deepencoder_decode_threads", kGauge, "", "", kNone,
     "Threads of the decode pool."},
    {MetricId::kDecodeWorkers, "deepencoder_decode_workers", kGauge, "", "", kNone,
     "Confined processes that decode; 0 where images are decoded in the server's own."},
    {MetricId::kDecodeWorkerEnds, "deepencoder_decode_worker_ends_total", kCounter, "", "reason", kNone,
     "Decode workers that ended and were replaced: crash (the image's doing), timeout (killed after --decode-timeout), gone "
     "(anything else, such as the kernel's want of memory)."},
    // ---- shared memory
    {MetricId::kSharedMemoryRegions, "deepencoder_shared_memory_regions", kGauge, "", "", kNone,
     "Regions of clients' shared memory that are registered, or still used by a request; each is an open file."},
    {MetricId::kSharedMemoryBytes, "deepencoder_shared_memory_bytes", kGauge, "bytes", "", kNone,
     "Their sizes together."},
    {MetricId::kSharedMemoryCopied, "deepencoder_shared_memory_copied_bytes_total", kCounter, "bytes", "direction", kNone,
     "Bytes copied from (read) and written to (write) clients' shared memory."},
    {MetricId::kSharedMemoryEnded, "deepencoder_shared_memory_ended_total", kCounter, "", "reason", kNone,
     "Regions that ended without being unregistered: not used for long (idle), or their client's process has ended (client_ended)."},
    // ---- the server
    {MetricId::kServing, "deepencoder_serving", kGauge, "", "", kNone,
     "1 while health says SERVING, else 0."},
    {MetricId::kStartDuration, "deepencoder_start_duration_seconds", kGauge, "seconds", "", kNone,
     "From the process' start to SERVING."},
    {MetricId::kBuildInfo, "deepencoder_build_info", kGauge, "", "version,commit,device,compute_dtype", kNone,
     "Always 1; the labels say what is running."},
    {MetricId::kModelInfo, "deepencoder_model_info", kGauge, "", "model,weights_fingerprint,synthetic", kNone,
     "Always 1; the labels say which weights new images are encoded with."},
    {MetricId::kReloads, "deepencoder_reloads_total", kCounter, "", "result", kNone,
     "Reloads of the weights asked for: ok, or why the old ones were kept: busy (another one was under way), memory (no room for "
     "both), checkpoint (missing or broken), stopping (the server was starting or draining), failed (device or values)."},
    {MetricId::kDeviceMemory, "deepencoder_device_memory_bytes", kGauge, "bytes", "device,kind", kNone,
     "Memory the backend holds on a device, by what for: weights, workspace, graphs, views (on a GPU images too, and what is kept "
     "for the next ones), code (kernels, of the whole process). A GPU's driver holds its context beside that."},
    {MetricId::kDeviceMemoryPeak, "deepencoder_device_memory_peak_bytes", kGauge, "bytes", "device,kind", kNone,
     "The most it has held since these weights were loaded."},
    // ---- the GPUs as the driver sees them (NVML), each that the server uses; absent without a GPU
    {MetricId::kGpuInfo, "deepencoder_gpu_info", kGauge, "", "device,name,uuid,driver", kNone,
     "Always 1; the labels say which GPU and driver it is."},
    {MetricId::kGpuUtilization, "deepencoder_gpu_utilization_ratio", kGauge, "ratio", "device", kNone,
     "Share of the time in which a kernel of any process ran on the GPU."},
    {MetricId::kGpuMemoryUsed, "deepencoder_gpu_memory_used_bytes", kGauge, "bytes", "device", kNone,
     "Memory of the GPU that is taken, by all processes and the driver."},
    {MetricId::kGpuMemoryTotal, "deepencoder_gpu_memory_total_bytes", kGauge, "bytes", "device", kNone,
     "Memory of the GPU."},
    {MetricId::kGpuPower, "deepencoder_gpu_power_watts", kGauge, "watts", "device", kNone,
     "Power that the GPU draws."},
    {MetricId::kGpuPowerLimit, "deepencoder_gpu_power_limit_watts", kGauge, "watts", "device", kNone,
     "Power that the GPU may draw."},
    {MetricId::kGpuTemperature, "deepencoder_gpu_temperature_celsius", kGauge, "celsius", "device", kNone,
     "Temperature of the GPU's die."},
    {MetricId::kGpuClock, "deepencoder_gpu_clock_hertz", kGauge, "hertz", "device,clock", kNone,
     "Clock of the multiprocessors (sm) and of the memory."},
    {MetricId::kGpuThrottled, "deepencoder_gpu_throttled", kGauge, "", "device,reason", kNone,
     "1 while this reason holds the clocks down: power_cap (how a busy GPU lives), hardware_slowdown, sync_boost, "
     "software_thermal, hardware_thermal, power_brake."},
    {MetricId::kGpuEccErrors, "deepencoder_gpu_ecc_errors_total", kCounter, "", "device,kind", kNone,
     "Memory errors since the driver was loaded: corrected, uncorrected."},
    // ---- traces; absent without --otlp-endpoint
    {MetricId::kTraceSpans, "deepencoder_trace_spans_total", kCounter, "", "result", kNone,
     "Spans of traced calls: sent, queue_full (let go before they were sent), failed (not taken by the collector)."},
    // ---- the process; names as in Prometheus' client libraries
    {MetricId::kProcessCpu, "process_cpu_seconds_total", kCounter, "seconds", "", kNone,
     "User and system CPU time of the process."},
    {MetricId::kProcessMemory, "process_resident_memory_bytes", kGauge, "bytes", "", kNone,
     "Resident memory of the process."},
    {MetricId::kProcessVirtualMemory, "process_virtual_memory_bytes", kGauge, "bytes", "", kNone,
     "Virtual memory of the process."},
    {MetricId::kProcessFds, "process_open_fds", kGauge, "", "", kNone,
     "Open file descriptors."},
    {MetricId::kProcessMaxFds, "process_max_fds", kGauge, "", "", kNone,
     "Most file descriptors the process may open."},
    {MetricId::kProcessThreads, "process_threads", kGauge, "", "", kNone,
     "Threads of the process."},
    {MetricId::kProcessStart, "process_start_time_seconds", kGauge, "seconds", "", kNone,
     "Start of the process, in seconds since 1970-01-01 UTC."},
};
// clang-format on

constexpr bool IsInOrder() {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<size_t>(kTable[i].id) != i) return false;
  }
  return true;
}
static_assert(IsInOrder(), "a row of the table is not at its MetricId");

}  // namespace

std::span<const MetricSpec> MetricTable() { return kTable; }

const MetricSpec& SpecOf(MetricId id) { return kTable[static_cast<size_t>(id)]; }

std::string_view Name(MetricType type) {
  switch (type) {
    case kCounter:
      return "counter";
    case kGauge:
      return "gauge";
    case kHistogram:
      return "histogram";
  }
  return "unknown";
}

std::vector<double> BoundsOf(BucketSet buckets) {
  switch (buckets) {
    case kNone:
      return {};
    case kSeconds:
      return {0.001, 0.0015, 0.0022, 0.0033, 0.005, 0.0075, 0.011, 0.017,
              0.025, 0.038,  0.057,  0.085,  0.13,  0.19,   0.29,  0.43,
              0.65,  1.0,    1.5,    2.2,    3.3,   5.0,    7.5,   10.0};
    case kBatch:
      return {1, 2, 4, 8, 16, 32, 64, 128};
  }
  return {};
}

std::string MetricsMarkdown() {
  std::string text = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n";
  for (const MetricSpec& spec : kTable) {
    text += "| `" + std::string(spec.name) + "` | " + std::string(Name(spec.type)) + " | " +
            spec.unit + " | " + spec.labels + " | " + spec.help + " |\n";
  }
  text += "\nHistograms in seconds have the upper bounds";
  for (const double bound : BoundsOf(kSeconds)) {
    std::string number = std::to_string(bound);
    number.erase(number.find_last_not_of('0') + 1);
    if (number.ends_with('.')) number.pop_back();
    text += " " + number;
  }
  return text + ".\n";
}

}  // namespace deepencoder
