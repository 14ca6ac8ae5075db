// Every metric, declared once: exposition, help texts and documentation are made from this table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepencoder {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };
enum class BucketSet : uint8_t { kNone, kSeconds, kBatch };

enum class MetricId : uint8_t {
  kRequests,
  kRequestDuration,
  kCallsActive,
  kStreamImages,
  kImages,
  kTokens,
  kStageDuration,
  kBatchSize,
  kBatchPadding,
  kBatchCompute,
  kQueueItems,
  kQueueBytes,
  kInFlight,
  kInFlightBytes,
  kGraphLaunches,
  kRejected,
  kDropped,
  kAuthFailures,
  kConnections,
  kConnectionsRefused,
  kStalledReplies,
  kCredentialReloads,
  kCertificateExpiry,
  kCacheRequests,
  kCacheBytes,
  kCacheEntries,
  kDecodeBusy,
  kDecodeThreads,
  kDecodeWorkers,
  kDecodeWorkerEnds,
  kSharedMemoryRegions,
  kSharedMemoryBytes,
  kSharedMemoryCopied,
  kSharedMemoryEnded,
  kServing,
  kStartDuration,
  kBuildInfo,
  kModelInfo,
  kReloads,
  kDeviceMemory,
  kDeviceMemoryPeak,
  kGpuInfo,
  kGpuUtilization,
  kGpuMemoryUsed,
  kGpuMemoryTotal,
  kGpuPower,
  kGpuPowerLimit,
  kGpuTemperature,
  kGpuClock,
  kGpuThrottled,
  kGpuEccErrors,
  kTraceSpans,
  kProcessCpu,
  kProcessMemory,
  kProcessVirtualMemory,
  kProcessFds,
  kProcessMaxFds,
  kProcessThreads,
  kProcessStart,
};

// In the order of the documentation.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): there are a few dozen
struct MetricSpec {
  MetricId id;
  const char* name;
  MetricType type;
  const char* unit;    // of the value; "" for a plain count
  const char* labels;  // names, comma-separated; "" for none
  BucketSet buckets;
  const char* help;
};

std::span<const MetricSpec> MetricTable();
const MetricSpec& SpecOf(MetricId id);
std::string_view Name(MetricType type);

// Upper bounds, ascending. kSeconds: 1 ms to 10 s, each about 1.5 times the one before.
std::vector<double> BoundsOf(BucketSet buckets);

// The table as Markdown.
std::string MetricsMarkdown();

}  // namespace deepencoder
