// `deepencoder reload`: asks a running server for other weights.
#include <grpcpp/client_context.h>

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/channel.h"
#include "client/commands.h"
#include "client/flags.h"
#include "client/server_flags.h"
#include "client/tensor_file.h"
#include "deepencoder/v1/admin.grpc.pb.h"

namespace deepencoder::client {
namespace {

struct ReloadArguments {
  ServerFlags server;
  std::string model;
  absl::Duration timeout = absl::Minutes(10);
  bool json = false, help = false;
};

const char kUsage[] =
    "deepencoder reload --server=ADDRESS [flags]: a running server takes other weights.\n"
    "\n"
    "  deepencoder reload --server=unix:/run/deepencoder/admin.sock\n"
    "  deepencoder reload --server=127.0.0.1:50052 --model=/models/DeepSeek-OCR-2026-11\n"
    "  deepencoder reload --server=ocr.example:50052 --root-certificates=ca.pem "
    "--token-file=operator.token\n"
    "\n"
    "The server loads them beside those it serves, then switches; no request is lost. A reload "
    "that\n"
    "fails changes nothing. ADDRESS is the server's --admin-listen. Put a checkpoint's files in "
    "place\n"
    "by renaming them: those that are served now may still be read.\n"
    "Exit status: 0 reloaded, 1 refused (the text says why), 2 wrong usage, 3 no server,\n"
    "or no answer in time.\n"
    "\n";

FlagSet ReloadFlags(ReloadArguments& args) {
  FlagSet flags;
  flags.AddText("server", "ADDRESS", "The server's --admin-listen: unix:PATH or host:port.",
                &args.server.server);
  args.server.token_variable = kAdminTokenVariable;
  AddAccessFlags(flags, args.server);
  flags.AddText("model", "DIR",
                "Folder of the checkpoint, as the server sees it.\nDefault: the one it serves.",
                &args.model);
  flags.AddDuration("timeout", "Longest time to wait for the end. Default: 10m.", &args.timeout);
  flags.AddSwitch("json", "One JSON object.", &args.json);
  flags.AddSwitch("help", "Print this.", &args.help);
  return flags;
}

std::string Text(const v1::ReloadModelResponse& reply) {
  return absl::StrCat("model    ", reply.model(), "\nweights  ", reply.old_weights_fingerprint(),
                      " -> ", reply.new_weights_fingerprint(), "\ntook     ", reply.seconds(),
                      " s\n");
}

std::string Json(const v1::ReloadModelResponse& reply) {
  return absl::StrCat("{\"model\":", JsonString(reply.model()),
                      ",\"old_weights_fingerprint\":", JsonString(reply.old_weights_fingerprint()),
                      ",\"new_weights_fingerprint\":", JsonString(reply.new_weights_fingerprint()),
                      ",\"seconds\":", reply.seconds(), "}\n");
}

}  // namespace

int RunReload(const std::vector<std::string>& words) {
  ReloadArguments args;
  const FlagSet flags = ReloadFlags(args);
  std::vector<std::string> others;
  const absl::Status parsed = flags.Parse(words, &others);
  if (parsed.ok() && args.help) {
    std::fputs((kUsage + flags.Help()).c_str(), stdout);
    return kExitOk;
  }
  if (!parsed.ok() || !others.empty() || args.server.server.empty()) {
    PrintError("reload: " + (!parsed.ok()     ? std::string(parsed.message())
                             : others.empty() ? "--server is required: the server's --admin-listen"
                                              : "unexpected argument '" + others.front() + "'"));
    return kExitUsage;
  }
  const absl::StatusOr<ClientOptions> access = WithServerFlags(args.server);
  const auto channel = access.ok()
                           ? OpenChannel(args.server.server, *access)
                           : absl::StatusOr<std::shared_ptr<grpc::Channel>>(access.status());
  if (!channel.ok()) {
    PrintError("reload: " + std::string(channel.status().message()));
    return kExitUsage;
  }
  const auto stub = v1::Admin::NewStub(*channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + args.timeout));
  v1::ReloadModelRequest request;
  request.set_model(args.model);
  v1::ReloadModelResponse reply;
  const grpc::Status status = stub->ReloadModel(&context, request, &reply);
  if (!status.ok()) {
    const absl::Status described(static_cast<absl::StatusCode>(status.error_code()),
                                 status.error_message());
    PrintError("reload: " + Describe(described));
    return ExitStatusOf(described);
  }
  std::fputs((args.json ? Json(reply) : Text(reply)).c_str(), stdout);
  return kExitOk;
}

}  // namespace deepencoder::client
