// The commands of the `deepencoder` program that talk to a server. Each takes the words after its name and
// returns the exit status.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace deepencoder::client {

// Exit statuses, for scripts.
inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitUnreachable = 3;

inline constexpr char kDefaultServer[] = "127.0.0.1:50051";

// DEEPENCODER_SERVER, else kDefaultServer.
std::string ServerFromEnvironment();

int RunEncode(const std::vector<std::string>& args);
int RunInfo(const std::vector<std::string>& args);
int RunHealth(const std::vector<std::string>& args);
int RunReload(const std::vector<std::string>& args);

// That of a call's error: kExitUnreachable if the server was not there or did not answer, else kExitFailed.
int ExitStatusOf(const absl::Status& error);

// "deepencoder: text" on standard error.
void PrintError(const std::string& text);
// `status` for people: "INVALID_ARGUMENT: the file ends early".
std::string Describe(const absl::Status& status);

}  // namespace deepencoder::client
