#include "client/commands.h"

#include <grpcpp/client_context.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/channel.h"
#include "client/client.h"
#include "client/flags.h"
#include "client/server_flags.h"
#include "client/tensor_file.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace deepencoder::client {
namespace {

void AddWaitFlag(FlagSet& flags, absl::Duration* timeout) {
  flags.AddDuration("timeout", "Longest time to wait. Default: 5s.", timeout);
}

// Parses a command that takes flags only; the exit status if it ends here.
std::optional<int> ParseFlagsOnly(const FlagSet& flags, const std::vector<std::string>& args,
                                  const bool& help, const std::string& usage) {
  std::vector<std::string> words;
  const absl::Status status = flags.Parse(args, &words);
  if (status.ok() && help) {
    std::fputs((usage + "\n" + flags.Help()).c_str(), stdout);
    return kExitOk;
  }
  if (status.ok() && words.empty()) return std::nullopt;
  PrintError(status.ok() ? "unexpected argument '" + words.front() + "'"
                         : std::string(status.message()));
  return kExitUsage;
}

std::string InfoText(const ModelInfo& info) {
  std::string text = absl::StrCat(
      "model         ", info.model,
      info.synthetic ? "  (SYNTHETIC weights: embeddings mean nothing)" : "", "\nweights       ",
      info.weights_fingerprint, "\ndevice        ", info.device, "\ncomputes in   ",
      std::string(Name(info.compute_dtype)), "\nserver        ", info.version, " (", info.commit,
      ")\nwidth         ", info.embedding_width, "\nmax tiles     ", info.default_max_tiles,
      " unless a request says otherwise\nimage limits  ", info.max_image_bytes, " bytes, ",
      info.max_image_pixels, " pixels\n\nmode    view  tile  rows\n");
  for (const ModeInfo& mode : info.modes) {
    char line[96];
    std::snprintf(line, sizeof(line), "%-7s %4d  %4s  %d%s\n", mode.name.c_str(), mode.base_side,
                  mode.tile_side == 0 ? "-" : std::to_string(mode.tile_side).c_str(), mode.rows,
                  mode.tile_side == 0 ? "" : " + 10 r (10 c + 1) with c x r tiles");
    text += line;
  }
  return text;
}

std::string InfoJson(const ModelInfo& info) {
  std::string modes;
  for (const ModeInfo& mode : info.modes) {
    absl::StrAppend(&modes, modes.empty() ? "" : ",", "{\"name\":", JsonString(mode.name),
                    ",\"base_side\":", mode.base_side, ",\"tile_side\":", mode.tile_side,
                    ",\"letterbox\":", mode.letterbox ? "true" : "false", ",\"rows\":", mode.rows,
                    "}");
  }
  return absl::StrCat(
      "{\"model\":", JsonString(info.model), ",\"synthetic\":", info.synthetic ? "true" : "false",
      ",\"weights_fingerprint\":", JsonString(info.weights_fingerprint),
      ",\"device\":", JsonString(info.device),
      ",\"compute_dtype\":", JsonString(std::string(Name(info.compute_dtype))),
      ",\"version\":", JsonString(info.version), ",\"commit\":", JsonString(info.commit),
      ",\"embedding_width\":", info.embedding_width,
      ",\"default_max_tiles\":", info.default_max_tiles,
      ",\"max_image_bytes\":", info.max_image_bytes,
      ",\"max_image_pixels\":", info.max_image_pixels, ",\"modes\":[", modes, "]}\n");
}

}  // namespace

std::string ServerFromEnvironment() {
  const char* server = std::getenv("DEEPENCODER_SERVER");
  return server != nullptr && *server != '\0' ? server : kDefaultServer;
}

int ExitStatusOf(const absl::Status& error) {
  const bool silent = absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error);
  return silent ? kExitUnreachable : kExitFailed;
}

void PrintError(const std::string& text) {
  std::fputs(("deepencoder: " + text + "\n").c_str(), stderr);
}

std::string Describe(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", std::string(status.message()));
}

int RunInfo(const std::vector<std::string>& args) {
  ServerFlags values;
  absl::Duration timeout = absl::Seconds(5);
  bool json = false, help = false;
  FlagSet flags;
  AddServerFlags(flags, values);
  AddWaitFlag(flags, &timeout);
  flags.AddSwitch("json", "One JSON object.", &json);
  flags.AddSwitch("help", "Print this.", &help);
  const std::optional<int> ended = ParseFlagsOnly(
      flags, args, help,
      "deepencoder info [flags]: what a server serves.\n"
      "Exit status: 0 done, 1 refused, 2 wrong usage, 3 no server, or no answer in time.\n");
  if (ended) return *ended;
  const absl::StatusOr<ClientOptions> options = WithServerFlags(values);
  const auto client = options.ok() ? Client::Create(values.server, *options)
                                   : absl::StatusOr<std::unique_ptr<Client>>(options.status());
  const absl::StatusOr<ModelInfo> info =
      client.ok() ? (*client)->Info(timeout) : absl::StatusOr<ModelInfo>(client.status());
  if (!info.ok()) {
    PrintError(Describe(info.status()));
    return client.ok() ? ExitStatusOf(info.status()) : kExitUsage;
  }
  std::fputs((json ? InfoJson(*info) : InfoText(*info)).c_str(), stdout);
  return kExitOk;
}

int RunHealth(const std::vector<std::string>& args) {
  ServerFlags values;
  absl::Duration timeout = absl::Seconds(5);
  bool json = false, help = false;
  FlagSet flags;
  AddServerFlags(flags, values);
  AddWaitFlag(flags, &timeout);
  flags.AddSwitch("json", "One JSON object.", &json);
  flags.AddSwitch("help", "Print this.", &help);
  const std::optional<int> ended = ParseFlagsOnly(
      flags, args, help,
      "deepencoder health [flags]: grpc.health.v1 of a server, for probes.\n"
      "Prints the status. Exit status: 0 SERVING, 1 not serving, 2 wrong usage, 3 no server,\n"
      "or no answer in time.\n");
  if (ended) return *ended;

  using grpc::health::v1::HealthCheckResponse;
  const absl::StatusOr<ClientOptions> options = WithServerFlags(values);
  const auto channel = options.ok()
                           ? OpenChannel(values.server, *options)
                           : absl::StatusOr<std::shared_ptr<grpc::Channel>>(options.status());
  if (!channel.ok()) {
    PrintError(Describe(channel.status()));
    return kExitUsage;
  }
  const auto stub = grpc::health::v1::Health::NewStub(*channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  HealthCheckResponse response;
  const grpc::Status status =
      stub->Check(&context, grpc::health::v1::HealthCheckRequest(), &response);
  if (!status.ok()) {
    PrintError(values.server + ": " + status.error_message());
    return ExitStatusOf(
        absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message()));
  }
  const std::string& name = HealthCheckResponse::ServingStatus_Name(response.status());
  std::fputs((json ? "{\"status\":" + JsonString(name) + "}\n" : name + "\n").c_str(), stdout);
  return response.status() == HealthCheckResponse::SERVING ? kExitOk : kExitFailed;
}

}  // namespace deepencoder::client
