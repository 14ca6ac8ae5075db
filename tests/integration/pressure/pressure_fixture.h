// Servers under clients that take too much.
#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "tests/integration/server_fixture.h"

namespace deepencoder {

inline std::vector<std::string> Quick(std::vector<std::string> more) {
  more.insert(more.end(), {"--modes=tiny,base", "--no-warm-up"});
  return more;
}

inline client::EncodeOptions Tiny() {
  client::EncodeOptions options;
  options.mode = client::Mode::kTiny;
  options.timeout = absl::Minutes(5);
  return options;
}

// The server still does its work, over a new connection.
inline absl::Status Works(const RunningServer& server) {
  return server.NewClient()->Encode(ReadImage("palette.png"), Tiny()).status();
}

// "VmHWM" or "VmRSS" of a process, in MiB.
inline int64_t MemoryOf(pid_t process, const std::string& what) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(what + ":")) return std::stoll(line.substr(what.size() + 1)) / 1024;
  }
  return -1;
}

inline v1::EncodeImageRequest RequestOf(const std::string& image, v1::Mode mode = v1::MODE_TINY) {
  v1::EncodeImageRequest request;
  request.set_encoded(ReadImage(image).encoded);
  request.set_mode(mode);
  return request;
}

inline std::unique_ptr<v1::VisionEncoder::Stub> StubOf(const RunningServer& server) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::VisionEncoder::NewStub(grpc::CreateCustomChannel(
      server.address("grpc"), grpc::InsecureChannelCredentials(), arguments));
}

}  // namespace deepencoder
