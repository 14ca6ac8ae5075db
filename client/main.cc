// deepencoder: the client program.
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "client/bench_command.h"
#include "client/checkpoint_command.h"
#include "client/commands.h"
#include "client/view_command.h"
#include "cmake/version.h"

namespace {

const char kHelp[] =
    "deepencoder: images -> the embeddings that DeepSeek-OCR's language model reads.\n"
    "\n"
    "  deepencoder encode IMAGE...     embed images with a running server\n"
    "  deepencoder info                what a server serves: modes, limits, device, weights\n"
    "  deepencoder health              whether a server is ready, for probes\n"
    "  deepencoder view IMAGE          what the language model gets of an image: tiles, tokens, rows\n"
    "  deepencoder bench               measure a server: latency against throughput\n"
    "  deepencoder checkpoint ...      look at a checkpoint folder, or make a synthetic one\n"
    "\n"
    "'deepencoder COMMAND --help' explains each. A server is started by\n"
    "'deepencoder-server --model=DIR'; without the real checkpoint,\n"
    "'deepencoder checkpoint synthesize DIR' makes one to try things with.\n"
    "\n"
    "The server is found at --server=ADDRESS, else $DEEPENCODER_SERVER, else 127.0.0.1:50051.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 the server could not be reached.\n";

}  // namespace

int main(int argc, char** argv) {
  using deepencoder::client::kExitOk;
  using deepencoder::client::kExitUsage;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    std::fputs(kHelp, stderr);
    return kExitUsage;
  }
  const std::string& command = words.front();
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (command == "encode") return deepencoder::client::RunEncode(rest);
  if (command == "info") return deepencoder::client::RunInfo(rest);
  if (command == "health") return deepencoder::client::RunHealth(rest);
  if (command == "view") return deepencoder::client::RunView(rest);
  if (command == "bench") return deepencoder::client::RunBench(rest);
  if (command == "checkpoint") return deepencoder::RunCheckpointCommand(rest, std::cout, std::cerr);
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(kHelp, stdout);
    return kExitOk;
  }
  if (command == "--version") {
    std::printf("deepencoder %s (%s)\n", deepencoder::kBuildVersion, deepencoder::kBuildCommit);
    return kExitOk;
  }
  deepencoder::client::PrintError("unknown command '" + command +
                                  "'; 'deepencoder --help' lists the commands");
  return kExitUsage;
}
