// Every option of the server, declared once: the table in options.cc is the flag, the environment
// variable, the default, the range check, the --help text and the documentation.
//
// A flag wins over the environment (DEEPENCODER_ and the flag's name in capitals), which wins over the
// default.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "encoder/base/dtype.h"
#include "encoder/image/decode.h"
#include "encoder/model/geometry.h"
#include "server/log.h"

namespace deepencoder {

enum class DeviceChoice : uint8_t { kAuto, kCpu, kCuda };
enum class DecodeSandbox : uint8_t { kProcess, kRequired, kOff };

// What each field means is said by its row in the table. Plain data, made by DefaultOptions() or
// ParseCommandLine(); the fields' initialisers are not the defaults.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): there is one, grouped as --help is
struct ServerOptions {
  // model
  std::string model;
  std::vector<Mode> modes;
  int64_t max_tiles = 0;
  // addresses
  std::vector<std::string> listen;
  std::string metrics_listen;         // empty: no metrics endpoint
  absl::Duration gpu_metrics_period;  // 0: the driver is not asked
  bool reflection = false;
  bool kserve = false;
  std::string admin_listen;  // empty: nowhere
  std::string ready_file;    // empty: none
  // device
  DeviceChoice device = DeviceChoice::kAuto;
  std::vector<int> devices;            // ordinals; empty: all
  std::optional<DType> compute_dtype;  // empty: the best the device has
  int64_t threads = 0;                 // of a CPU slot; 0: all cores
  int64_t slots = 0;                   // of a device; 0: the device's default
  std::vector<int> batch_buckets;      // ascending
  absl::Duration max_batch_delay;
  absl::Duration device_timeout;  // 0: the device's default
  bool graphs = false;
  // images
  int64_t decode_threads = 0;  // 0: all cores
  DecodeSandbox decode_sandbox = DecodeSandbox::kProcess;
  absl::Duration decode_timeout;  // CPU time
  int64_t max_image_bytes = 0;
  int64_t max_image_pixels = 0;
  AlphaPolicy alpha = AlphaPolicy::kDrop;
  Gray16Policy gray16 = Gray16Policy::kHighByte;
  // bounds
  int64_t max_requests_in_flight = 0;
  int64_t max_images_in_flight = 0;
  int64_t max_views_in_flight = 0;
  int64_t max_bytes_in_flight = 0;
  int64_t stream_window = 0;
  int64_t grpc_memory = 0;
  int64_t cache_bytes = 0;  // 0: no cache
  // connections; 0: no bound
  int64_t max_connections = 0, max_connections_per_address = 0;
  int64_t max_streams = 0;  // of a connection
  int64_t max_metadata = 0;
  absl::Duration keepalive, max_connection_idle, max_connection_age, max_connection_age_grace;
  absl::Duration reply_timeout;
  int64_t reply_memory = 0;
  // security; an empty file: not used
  std::string tls_cert, tls_key, tls_client_ca, token_file, admin_token_file;
  int64_t client_images_per_second = 0, client_bytes_per_second = 0, client_images_in_flight = 0;
  // shared memory
  bool shared_memory = false;
  int64_t shared_memory_bytes = 0;
  int64_t shared_memory_regions = 0;
  absl::Duration shared_memory_idle;
  std::string shared_memory_prefix;
  // life
  bool warm_up = true;
  absl::Duration drain_timeout;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  // traces
  std::string otlp_endpoint;  // empty: no traces
  std::string otlp_service_name;
  double trace_ratio = 0;
  int64_t otlp_queue = 0;  // spans
};

ServerOptions DefaultOptions();

struct Command {
  enum class Action : uint8_t { kServe, kHelp, kVersion, kMetricsDocs, kOptionsDocs };
  Action action = Action::kServe;
  ServerOptions options;
};

// Value of an environment variable, or nullptr.
using Environment = std::function<const char*(const char* name)>;

// `args` without the program's name. Errors: INVALID_ARGUMENT naming the flag or the variable.
absl::StatusOr<Command> ParseCommandLine(std::span<const char* const> args,
                                         const Environment& environment);

// --help.
std::string HelpText();
// The table as Markdown.
std::string OptionsMarkdown();

// Sides (pixels, ascending) of the views that these modes use.
std::vector<int> SidesOf(std::span<const Mode> modes);

}  // namespace deepencoder
