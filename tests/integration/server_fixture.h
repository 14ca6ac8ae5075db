// A real server with the mini checkpoint on the CPU, as a process of its own.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "tests/integration/process.h"
#include "tests/work_folder.h"

namespace deepencoder {

// The synthetic checkpoint of depth 3 and 2 (block 2 attends globally), written once a program.
const std::string& MiniCheckpoint();

class RunningServer {
 public:
  // Serves on a free port and a unix socket; `flags` come behind the usual ones. Waits until it is ready,
  // or has ended.
  RunningServer(const std::string& name, const std::vector<std::string>& flags,
                const std::string& program = DEEPENCODER_SERVER_PROGRAM);

  Process& process() { return *process_; }
  bool ready() const { return !addresses_.empty(); }
  // "grpc": host:port, "unix": unix:path, "metrics": host:port, "admin": what --admin-listen says.
  const std::string& address(const std::string& what) const { return addresses_.at(what); }
  std::unique_ptr<client::Client> NewClient(const std::string& what = "grpc") const;

  // Samples of a scrape, by name{labels}.
  std::map<std::string, double> Metrics() const;

 private:
  std::map<std::string, std::string> addresses_;
  std::unique_ptr<Process> process_;
};

// `deepencoder args...`, to its end.
Outcome RunClient(const std::vector<std::string>& args);

std::string TestImage(const std::string& name);
client::Image ReadImage(const std::string& name);

// Polls until `condition` holds; the limit only keeps a broken build from waiting for ever.
template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 60'000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

}  // namespace deepencoder
