// A server that fails on command, and what must hold whatever fails.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/server_fixture.h"

namespace deepencoder {

// Of a process, as /proc has them.
int OpenFiles(pid_t process);
int Threads(pid_t process);

class FaultTest : public testing::Test {
 protected:
  FaultTest();
  // Starts deepencoder-server-faults with mode tiny and `rules` (fault_rules.h).
  void Start(const std::vector<std::string>& flags, const std::string& rules = "");
  // Replaces the rules; they count for every call after this.
  void SetRules(const std::string& rules);

  RunningServer& server() { return *server_; }
  client::Client& caller() {
    return *client_;
  }  // one connection for all, which the idle server has

  // What encoding this image in mode tiny gives, by a first call while nothing fails.
  const std::string& RowsOf(const std::string& image);
  static client::EncodeOptions Tiny(absl::Duration timeout = absl::Minutes(2));
  absl::StatusOr<client::Embeddings> Encode(const std::string& image);

  // `count` calls from several threads at once. Each has one answer: the right rows, or a code, counted.
  std::map<absl::StatusCode, int> Burst(int count);
  bool Serving();

  // Nothing is under way, and nothing is held for what was: every call that tests have made is in the
  // counter of some code, no image or view is held, no file is left open.
  void ExpectNothingIsLeft();
  double CallsCounted();  // EncodeImage, by any code

  int calls_made_ = 0;  // EncodeImage calls that must be counted

 private:
  const std::string name_, rules_path_;
  std::unique_ptr<RunningServer> server_;
  std::unique_ptr<client::Client> client_;
  std::map<std::string, std::string> rows_;
  int idle_files_ = 0;
};

}  // namespace deepencoder
