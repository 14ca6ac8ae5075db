#include "tests/integration/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string_view>

namespace deepencoder {
namespace {

constexpr int kCannotRun = 127;  // exit status, as of shells

int ExitStatus(int wait_status) {
  constexpr int kSignalBase = 128;
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : kSignalBase + WTERMSIG(wait_status);
}

void Redirect(const char* path, int flags, int to) {
  const int file = open(path, flags, 0600);
  if (file >= 0) dup2(file, to);
}

// In the forked child: only calls that are safe there. Ends with its parent, however that ends.
[[noreturn]] void RunChild(char** argv, char** environment, const char* out, const char* err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  Redirect(out, O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  Redirect(err, O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  execve(argv[0], argv, environment);
  _exit(kCannotRun);
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
    const std::string_view text(*variable);
    if (!text.starts_with("DEEPENCODER_") || text.starts_with("DEEPENCODER_CUDA_LIBRARY=")) {
      environment.push_back(*variable);
    }
  }
  environment.push_back(nullptr);

  pid_ = fork();
  if (pid_ == 0) {
    RunChild(argv.data(), environment.data(), stdout_path_.c_str(), stderr_path_.c_str());
  }
  if (pid_ < 0) status_ = kCannotRun;
}

Process::~Process() {
  if (!running()) return;
  Signal(SIGKILL);
  Wait();
}

void Process::Signal(int number) const {
  if (!status_) kill(pid_, number);
}

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
