#include "server/options.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/option_setters.h"
#include "server/options_table.h"
#include "server/values.h"

namespace deepencoder {
namespace {

using namespace option_setters;  // NOLINT(google-build-using-namespace): made for this table

Choices<Mode> ModeChoices() {
  Choices<Mode> choices;
  for (const ModeSpec& spec : Modes()) choices.emplace_back(std::string(spec.name), spec.mode);
  return choices;
}

absl::Status CheckDistinct(const std::vector<int>& items) {
  if (std::set<int>(items.begin(), items.end()).size() == items.size()) return absl::OkStatus();
  return absl::InvalidArgumentError("an item is there twice");
}

absl::Status CheckAscending(const std::vector<int>& items) {
  if (items.empty()) return absl::InvalidArgumentError("the list is empty");
  for (size_t i = 1; i < items.size(); ++i) {
    if (items[i] <= items[i - 1]) {
      return absl::InvalidArgumentError("the numbers must ascend, such as 1,2,4,8");
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kMaxReceiveLimit = INT32_MAX - (int64_t{2} << 20);  // gRPC counts bytes in an int

void AddModelOptions(std::vector<OptionSpec>& table) {
  const char* group = "Model";
  table.push_back(
      {group, "model", "DIR", "",
       "Folder of the DeepSeek-OCR checkpoint: config.json and *.safetensors. Required.",
       Text(&ServerOptions::model)});
  table.push_back(
      {group, "modes", "LIST", "tiny,small,base,large,gundam",
       "Modes served, comma-separated. Fewer modes need less memory and start sooner.",
       ListOf(
           &ServerOptions::modes, [](std::string_view text) { return Choose(text, ModeChoices()); },
           CheckNotEmpty<Mode>)});
  table.push_back(
      {group, "max-tiles", "N", absl::StrCat(kDefaultMaxTiles),
       absl::StrCat("Most tiles of a gundam image when the request does not say, ", kMinMaxTiles,
                    " to ", kMaxMaxTiles, ". The language model's must be the same."),
       Integer(&ServerOptions::max_tiles, kMinMaxTiles, kMaxMaxTiles)});
}

void AddAddressOptions(std::vector<OptionSpec>& table) {
  const char* group = "Addresses";
  table.push_back(
      {group, "listen", "LIST", "127.0.0.1:50051",
       "Where gRPC is served, comma-separated: HOST:PORT, [IPV6]:PORT or unix:PATH. "
       "Port 0 takes a free one and logs it. Beyond loopback and unix sockets, use "
       "--tls-cert and --token-file, or a network that is trusted.",
       ListOf(
           &ServerOptions::listen,
           [](std::string_view text) -> absl::StatusOr<std::string> { return std::string(text); },
           CheckNotEmpty<std::string>)});
  table.push_back({group, "metrics-listen", "ADDRESS", "127.0.0.1:9095",
                   "Where Prometheus finds /metrics: HOST:PORT, port 0 takes a free one; empty: "
                   "nowhere.",
                   Text(&ServerOptions::metrics_listen)});
  table.push_back({group, "gpu-metrics-period", "DURATION", "1s",
                   "How often the GPU's driver (NVML) is asked for utilisation, power, clocks and "
                   "errors; 0: never.",
                   Duration(&ServerOptions::gpu_metrics_period, absl::Hours(1))});
  table.push_back({group, "reflection", "", "false",
                   "Serve gRPC reflection, so that tools such as grpcurl can list the service.",
                   Switch(&ServerOptions::reflection)});
  table.push_back({group, "kserve", "", "true",
                   "Serve KServe's inference protocol (v2) on the same addresses.",
                   Switch(&ServerOptions::kserve)});
  table.push_back({group, "admin-listen", "ADDRESS", "",
                   "Where the service that operates the server is found (deepencoder reload): "
                   "unix:PATH or HOST:PORT; empty: nowhere. Without --admin-token-file whoever "
                   "can connect there can change the weights, so it must be a unix socket, whose "
                   "file takes its rights from the umask, or of the loopback interface.",
                   Text(&ServerOptions::admin_listen)});
  table.push_back({group, "ready-file", "FILE", "",
                   "File to write once serving: a line name=value for each address, with the real "
                   "ports. One of an earlier run is removed at the start.",
                   Text(&ServerOptions::ready_file)});
}

void AddDeviceOptions(std::vector<OptionSpec>& table) {
  const char* group = "Device";
  table.push_back({group, "device", "auto|cpu|cuda", "auto",
                   "What encodes. auto: CUDA where it works, else the CPU.",
                   Choice<DeviceChoice>(&ServerOptions::device, {{"auto", DeviceChoice::kAuto},
                                                                 {"cpu", DeviceChoice::kCpu},
                                                                 {"cuda", DeviceChoice::kCuda}})});
  table.push_back({group, "devices", "LIST", "all", "GPUs to use: all, or ordinals such as 0,1.",
                   [set = ListOf(
                        &ServerOptions::devices,
                        [](std::string_view text) -> absl::StatusOr<int> {
                          return ParseInteger(text, 0, 1023);
                        },
                        CheckDistinct)](std::string_view text, ServerOptions& options) {
                     return set(text == "all" ? "" : text, options);
                   }});
  table.push_back(
      {group, "compute-dtype", "auto|bf16|fp16|fp32", "auto",
       "Type the encoder computes in. CUDA: bf16 or fp16; CPU: bf16 or fp32. auto: "
       "bf16, and fp32 on a CPU without AMX.",
       Choice<std::optional<DType>>(&ServerOptions::compute_dtype, {{"auto", std::nullopt},
                                                                    {"bf16", DType::kBf16},
                                                                    {"fp16", DType::kFp16},
                                                                    {"fp32", DType::kFp32}})});
  table.push_back({group, "threads", "N", "0",
                   "Threads of a CPU slot; 0: one a core that the process may use.",
                   Integer(&ServerOptions::threads, 0, 1024)});
  table.push_back({group, "slots", "N", "0",
                   "Batches that run at once on a device; 0: 2 on a GPU, 1 on the CPU.",
                   Integer(&ServerOptions::slots, 0, 64)});
  table.push_back(
      {group, "batch-buckets", "LIST", "1,2,4,8,16,32",
       "Batch sizes that are prepared (and captured as CUDA graphs), ascending. A "
       "batch is padded to the next one; the last is the largest.",
       ListOf(
           &ServerOptions::batch_buckets,
           [](std::string_view text) -> absl::StatusOr<int> { return ParseInteger(text, 1, 1024); },
           CheckAscending)});
  table.push_back({group, "max-batch-delay", "DURATION", "0",
                   "How long a view may wait for company while a slot is idle. 0: an idle slot "
                   "takes what is there.",
                   Duration(&ServerOptions::max_batch_delay, absl::Seconds(10))});
  table.push_back(
      {group, "device-timeout", "DURATION", "0",
       "How long a device may take for a batch before its images fail and the slot counts as "
       "stuck; with no slot left health says NOT_SERVING. 0: 1m on a GPU, no limit on the CPU.",
       Duration(&ServerOptions::device_timeout, absl::Hours(24))});
  table.push_back({group, "graphs", "", "true",
                   "Capture CUDA graphs at start for every view side and batch bucket.",
                   Switch(&ServerOptions::graphs)});
}

void AddImageOptions(std::vector<OptionSpec>& table) {
  const char* group = "Images";
  table.push_back({group, "decode-threads", "N", "0",
                   "Threads that decode images and make views; 0: one a core that the process "
                   "may use.",
                   Integer(&ServerOptions::decode_threads, 0, 1024)});
  table.push_back(
      {group, "decode-sandbox", "process|required|off", "process",
       "Decode in processes that can open no file, connect nowhere and start nothing, one for each "
       "decode thread. process: in the server's own where the system refuses them, with a warning; "
       "required: do not start then; off: in the server's own.",
       Choice<DecodeSandbox>(&ServerOptions::decode_sandbox,
                             {{"process", DecodeSandbox::kProcess},
                              {"required", DecodeSandbox::kRequired},
                              {"off", DecodeSandbox::kOff}})});
  table.push_back({group, "decode-timeout", "DURATION", "30s",
                   "CPU time that decoding an image may take; only with a decode sandbox.",
                   Store(&ServerOptions::decode_timeout, [](std::string_view text) {
                     return ParseDuration(text, absl::Milliseconds(1), absl::Hours(1));
                   })});
  table.push_back({group, "max-image-bytes", "SIZE", "32MiB",
                   "Largest image file, or raw RGB, of a request. A message up to four times as "
                   "large is read and refused for itself; a larger one ends its call.",
                   Bytes(&ServerOptions::max_image_bytes, kKiB, kMaxReceiveLimit)});
  table.push_back({group, "max-image-pixels", "N", "178956970",
                   "Most pixels (width x height) of an image, read from the file's header.",
                   Integer(&ServerOptions::max_image_pixels, 1, int64_t{1} << 40)});
  table.push_back({group, "alpha", "drop|white", "drop",
                   "Transparency when the request does not say. drop: colour as stored, as the "
                   "reference does; white: composited on white.",
                   Choice<AlphaPolicy>(&ServerOptions::alpha, {{"drop", AlphaPolicy::kDrop},
                                                               {"white", AlphaPolicy::kWhite}})});
  table.push_back(
      {group, "gray16", "high_byte|saturate", "high_byte",
       "16-bit greyscale when the request does not say. saturate: min(v, 255), as the "
       "reference does, which turns most scans white.",
       Choice<Gray16Policy>(&ServerOptions::gray16, {{"high_byte", Gray16Policy::kHighByte},
                                                     {"saturate", Gray16Policy::kSaturate}})});
}

void AddBoundOptions(std::vector<OptionSpec>& table) {
  const char* group = "Bounds (what is over them is refused with RESOURCE_EXHAUSTED)";
  table.push_back(
      {group, "max-requests-in-flight", "N", "4096",
       "Most calls at a time that encode: EncodeImage, ModelInfer, and EncodeImages while "
       "an image of the stream is at work.",
       Integer(&ServerOptions::max_requests_in_flight, 1, 1 << 20)});
  table.push_back({group, "max-images-in-flight", "N", "1024",
                   "Most images accepted and not yet answered.",
                   Integer(&ServerOptions::max_images_in_flight, 1, 1 << 20)});
  table.push_back({group, "max-views-in-flight", "N", "4096",
                   "Most views (a tile is one) of accepted images.",
                   Integer(&ServerOptions::max_views_in_flight, kMaxMaxTiles + 1, 1 << 24)});
  table.push_back({group, "max-bytes-in-flight", "SIZE", "4GiB",
                   "Most bytes of accepted images: files, what decoding them may take, views and "
                   "replies.",
                   Bytes(&ServerOptions::max_bytes_in_flight, kKiB * kKiB, 1024 * kGiB)});
  table.push_back({group, "stream-window", "N", "64",
                   "Images in flight of one EncodeImages call; more are not read from the stream.",
                   Integer(&ServerOptions::stream_window, 1, 1 << 16)});
  table.push_back({group, "grpc-memory", "SIZE", "1GiB",
                   "Memory that gRPC may use for messages in transit.",
                   Bytes(&ServerOptions::grpc_memory, 16 * kKiB * kKiB, 1024 * kGiB)});
  table.push_back({group, "cache-bytes", "SIZE", "0",
                   "Results kept for images that come again; 0: none.",
                   Bytes(&ServerOptions::cache_bytes, 0, 1024 * kGiB)});
}

void AddSharedMemoryOptions(std::vector<OptionSpec>& table) {
  const char* group = "Shared memory of clients of this host";
  table.push_back({group, "shared-memory", "", "false",
                   "Let clients on a unix socket or the loopback interface keep images and rows in "
                   "POSIX shared memory objects of this server's user.",
                   Switch(&ServerOptions::shared_memory)});
  table.push_back({group, "shared-memory-bytes", "SIZE", "1GiB",
                   "Most bytes of all regions that are registered.",
                   Bytes(&ServerOptions::shared_memory_bytes, kKiB, 1024 * kGiB)});
  table.push_back({group, "shared-memory-regions", "N", "64",
                   "Most regions that are registered; each keeps a file open.",
                   Integer(&ServerOptions::shared_memory_regions, 1, 1 << 16)});
  table.push_back({group, "shared-memory-idle", "DURATION", "10m",
                   "A region that no request has used for so long is forgotten.",
                   Duration(&ServerOptions::shared_memory_idle, absl::Hours(24 * 365))});
  table.push_back({group, "shared-memory-prefix", "TEXT", "deepencoder",
                   "How the names of objects must begin, so that no client can point at those of "
                   "other programs.",
                   Text(&ServerOptions::shared_memory_prefix)});
}

void AddLifeOptions(std::vector<OptionSpec>& table) {
  const char* group = "Start, stop, log";
  table.push_back({group, "warm-up", "", "true",
                   "Encode a synthetic image of every view side before saying SERVING.",
                   Switch(&ServerOptions::warm_up)});
  table.push_back({group, "drain-timeout", "DURATION", "30s",
                   "After SIGTERM or SIGINT, how long accepted images may take to finish. A second "
                   "signal exits at once.",
                   Duration(&ServerOptions::drain_timeout, absl::Hours(24))});
  table.push_back({group, "log-level", "debug|info|warning|error", "info",
                   "Least level that is logged. debug has a line for each image.",
                   Choice<LogLevel>(&ServerOptions::log_level, {{"debug", LogLevel::kDebug},
                                                                {"info", LogLevel::kInfo},
                                                                {"warning", LogLevel::kWarning},
                                                                {"error", LogLevel::kError}})});
  table.push_back({group, "log-format", "text|json", "text", "Log lines on standard error.",
                   Choice<LogFormat>(&ServerOptions::log_format,
                                     {{"text", LogFormat::kText}, {"json", LogFormat::kJson}})});
}

void AddTraceOptions(std::vector<OptionSpec>& table) {
  const char* group = "Traces";
  table.push_back(
      {group, "otlp-endpoint", "ADDRESS", "",
       "OpenTelemetry collector that gets a span for each step of traced calls, by OTLP "
       "over gRPC: HOST:PORT, http://HOST:PORT, https://HOST:PORT (TLS) or unix:PATH; "
       "empty: no traces.",
       Text(&ServerOptions::otlp_endpoint)});
  table.push_back(
      {group, "trace-ratio", "SHARE", "0.01",
       "Share of the calls that are traced, 0 to 1, where the client's traceparent does "
       "not decide it.",
       Store(&ServerOptions::trace_ratio, ParseShare)});
  table.push_back({group, "otlp-service-name", "NAME", "deepencoder",
                   "The resource attribute service.name of the spans.",
                   Text(&ServerOptions::otlp_service_name)});
  table.push_back({group, "otlp-queue", "N", "4096",
                   "Spans that wait for the collector; more are let go and counted.",
                   Integer(&ServerOptions::otlp_queue, 1, 1 << 20)});
}

}  // namespace

const std::vector<OptionSpec>& OptionTable() {
  static const std::vector<OptionSpec> table = [] {
    std::vector<OptionSpec> rows;
    AddModelOptions(rows);
    AddAddressOptions(rows);
    AddDeviceOptions(rows);
    AddImageOptions(rows);
    AddBoundOptions(rows);
    AddConnectionOptions(rows);
    AddSecurityOptions(rows);
    AddSharedMemoryOptions(rows);
    AddLifeOptions(rows);
    AddTraceOptions(rows);
    return rows;
  }();
  return table;
}

std::vector<int> SidesOf(std::span<const Mode> modes) {
  std::set<int> sides;
  for (Mode mode : modes) {
    const ModeSpec& spec = SpecOf(mode);
    sides.insert(spec.base_side);
    if (spec.tile_side != 0) sides.insert(spec.tile_side);
  }
  return {sides.begin(), sides.end()};
}

}  // namespace deepencoder
