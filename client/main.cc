// deepencoder: the client program.
#include <malloc.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/bench_command.h"
#include "client/checkpoint_command.h"
#include "client/commands.h"
#include "client/completion_command.h"
#include "client/diff_command.h"
#include "client/view_command.h"
#include "encoder/version/version.h"

namespace {

// Each image brings a reply of megabytes, which is freed soon. Memory that is kept for the next one needs no
// page faults.
constexpr int kMapped = 32 << 20;  // the most that glibc takes
constexpr int kKeptAtEnd = 64 << 20;

using Words = std::vector<std::string>;

struct Command {
  const char *name, *arguments, *what;
  int (*run)(const Words& args);
};

int RunCheckpoint(const Words& args) {
  return deepencoder::RunCheckpointCommand(args, std::cout, std::cerr);
}

constexpr Command kCommands[] = {
    {"encode", "IMAGE...", "embed images with a running server", deepencoder::client::RunEncode},
    {"info", "", "what a server serves: modes, limits, device, weights",
     deepencoder::client::RunInfo},
    {"health", "", "whether a server is ready, for probes", deepencoder::client::RunHealth},
    {"reload", "", "let a running server take other weights, without losing a request",
     deepencoder::client::RunReload},
    {"view", "IMAGE", "what the language model gets of an image: tiles, tokens, rows",
     deepencoder::client::RunView},
    {"diff", "A B", "how far two embeddings of an image are apart", deepencoder::client::RunDiff},
    {"bench", "[IMAGE...]", "measure a server: latency against throughput",
     deepencoder::client::RunBench},
    {"checkpoint", "...", "look at a checkpoint folder, or make a synthetic one", RunCheckpoint},
    {"completion", "SHELL", "complete all this with the tab key, in bash, zsh or fish",
     deepencoder::client::RunCompletion},
};

const char kFirstSteps[] =
    "\n"
    "First steps, here without the real checkpoint:\n"
    "    deepencoder checkpoint synthesize /tmp/checkpoint\n"
    "    deepencoder-server --model=/tmp/checkpoint &\n"
    "    deepencoder encode page.png --out=page.safetensors\n"
    "    deepencoder view page.png --out=views.png\n"
    "\n"
    "'deepencoder help COMMAND' explains each, with examples. --json is for scripts.\n"
    "The server is found at --server=ADDRESS, else $DEEPENCODER_SERVER, else 127.0.0.1:50051.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no server, or no answer in time.\n";

std::string Help() {
  std::string text =
      "deepencoder: images -> the embeddings that DeepSeek-OCR's language model reads.\n\n";
  for (const Command& command : kCommands) {
    char line[160];
    const std::string call = std::string(command.name) + " " + command.arguments;
    std::snprintf(line, sizeof(line), "  deepencoder %-19s %s\n", call.c_str(), command.what);
    text += line;
  }
  return text + kFirstSteps;
}

const Command* Find(const std::string& name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

// What was printed may only now meet a full disk.
int Flushed(int status) {
  const bool printed = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.flush();
  if (printed) return status;
  deepencoder::client::PrintError(std::string("standard output: ") + std::strerror(errno));
  return status == deepencoder::client::kExitOk ? deepencoder::client::kExitFailed : status;
}

int Run(Words words) {
  using deepencoder::client::kExitOk;
  using deepencoder::client::kExitUsage;
  if (words.empty()) {
    std::fputs(Help().c_str(), stderr);
    return kExitUsage;
  }
  if (words.front() == "help" && words.size() == 2) words = {words.back(), "--help"};
  const std::string& name = words.front();
  if (const Command* command = Find(name)) {
    return command->run(Words(words.begin() + 1, words.end()));
  }
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(Help().c_str(), stdout);
    return kExitOk;
  }
  if (name == "--version") {
    std::printf("deepencoder %s (%s)\n", deepencoder::kBuildVersion, deepencoder::kBuildCommit);
    return kExitOk;
  }
  deepencoder::client::PrintError("unknown command '" + name +
                                  "'; 'deepencoder --help' lists the commands");
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  // Debian's Abseil looks for deadlocks at every lock of gRPC's, under one lock of the whole process.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  mallopt(M_MMAP_THRESHOLD, kMapped);
  mallopt(M_TRIM_THRESHOLD, kKeptAtEnd);
  return Flushed(Run(Words(argv + 1, argv + argc)));
}
