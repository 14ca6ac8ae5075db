#include "tests/integration/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <iterator>

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace deepencoder {
namespace {

int ExitStatus(int wait_status) {
  constexpr int kSignalBase = 128;
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : kSignalBase + WTERMSIG(wait_status);
}

}  // namespace

std::string FileContents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Process::Process(const std::string& program, const std::vector<std::string>& args,
                 const std::string& output_prefix)
    : stdout_path_(output_prefix + ".out"), stderr_path_(output_prefix + ".err") {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("DEEPENCODER_")) environment.push_back(*variable);
  }
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, stdout_path_.c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, stderr_path_.c_str(), flags, 0600);
  if (posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environment.data()) !=
      0) {
    constexpr int kNotFound = 127;
    status_ = kNotFound;
  }
  posix_spawn_file_actions_destroy(&actions);
}

Process::~Process() {
  if (!running()) return;
  Signal(SIGKILL);
  Wait();
}

void Process::Signal(int number) const { kill(pid_, number); }

bool Process::running() {
  int status = 0;
  if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) status_ = ExitStatus(status);
  return !status_;
}

int Process::Wait() {
  int status = 0;
  if (!status_ && waitpid(pid_, &status, 0) == pid_) status_ = ExitStatus(status);
  return *status_;
}

std::string Process::Stdout() const { return FileContents(stdout_path_); }
std::string Process::Stderr() const { return FileContents(stderr_path_); }

Outcome RunProgram(const std::string& program, const std::vector<std::string>& args,
                   const std::string& output_prefix) {
  Process process(program, args, output_prefix);
  const int status = process.Wait();
  return {status, process.Stdout(), process.Stderr()};
}

}  // namespace deepencoder
