// Programs as child processes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace deepencoder {

// A child with its output in files. Killed if it is still there at the end.
class Process {
 public:
  // `args` without the program's name. Environment variables DEEPENCODER_* are not inherited, but for the
  // file of the CUDA backend.
  Process(const std::string& program, const std::vector<std::string>& args,
          const std::string& output_prefix);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  bool running();
  // Waits for its end: exit status, or 128 + signal as shells count.
  int Wait();

  std::string Stdout() const;
  std::string Stderr() const;

 private:
  const std::string stdout_path_, stderr_path_;
  pid_t pid_ = -1;
  std::optional<int> status_;  // once it has ended
};

struct Outcome {
  int status;
  std::string out, err;
};

// Runs a program to its end.
Outcome RunProgram(const std::string& program, const std::vector<std::string>& args,
                   const std::string& output_prefix);

std::string FileContents(const std::string& path);

}  // namespace deepencoder
