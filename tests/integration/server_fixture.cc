#include "tests/integration/server_fixture.h"

#include <filesystem>
#include <sstream>
#include <utility>

#include "absl/time/clock.h"
#include "encoder/weights/synthetic.h"
#include "tests/integration/http_get.h"

namespace deepencoder {

const std::string& MiniCheckpoint() {
  static const std::string folder = [] {
    std::string path = WorkFolder() + "/mini";
    SyntheticOptions options;
    options.sam_depth = 3;
    options.clip_layers = 2;
    const absl::Status status = WriteSyntheticCheckpoint(path, options);
    EXPECT_TRUE(status.ok()) << status;
    return path;
  }();
  return folder;
}

RunningServer::RunningServer(const std::string& name, const std::vector<std::string>& flags,
                             const std::string& program) {
  const std::string ready = WorkFolder() + "/" + name + ".ready";
  std::vector<std::string> args = {
      "--model=" + MiniCheckpoint(),
      "--device=cpu",
      "--listen=127.0.0.1:0,unix:" + WorkFolder() + "/" + name + ".sock",
      "--metrics-listen=127.0.0.1:0",
      "--ready-file=" + ready,
      "--compute-dtype=fp32"};
  args.insert(args.end(), flags.begin(), flags.end());
  std::filesystem::remove(ready);  // of a server of that name before
  process_ = std::make_unique<Process>(program, args, WorkFolder() + "/" + name);
  while (process_->running() && !std::filesystem::exists(ready)) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  std::istringstream lines(FileContents(ready));
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    const std::string what = line.substr(0, equals), address = line.substr(equals + 1);
    addresses_[what == "grpc" && address.starts_with("unix:") ? "unix" : what] = address;
  }
}

std::unique_ptr<client::Client> RunningServer::NewClient(const std::string& what) const {
  client::ClientOptions options;
  options.retry.max_attempts = 1;  // each answer is looked at as it is
  return *client::Client::Create(address(what), options);
}

std::map<std::string, double> RunningServer::Metrics() const {
  std::map<std::string, double> samples;
  std::istringstream lines(HttpGet(address("metrics"), "/metrics"));
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.rfind(' ');
    if (line.starts_with("#") || blank == std::string::npos || !line.starts_with("deepencoder_")) {
      continue;
    }
    samples[line.substr(0, blank)] = std::stod(line.substr(blank + 1));
  }
  return samples;
}

Outcome RunClient(const std::vector<std::string>& args) {
  static int runs = 0;
  return RunProgram(DEEPENCODER_CLIENT_PROGRAM, args,
                    WorkFolder() + "/client" + std::to_string(runs++));
}

std::string TestImage(const std::string& name) {
  return std::string(DEEPENCODER_TEST_DATA) + "/images/" + name;
}

client::Image ReadImage(const std::string& name) {
  auto image = client::ReadImageFile(TestImage(name));
  EXPECT_TRUE(image.ok()) << image.status();
  return image.ok() ? *std::move(image) : client::Image();
}

}  // namespace deepencoder
