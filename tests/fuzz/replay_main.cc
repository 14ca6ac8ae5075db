// Runs a fuzz target over files, without a fuzzer: `TARGET PATH...`, each a file or a folder. What once
// was found is so tried by every compiler and in every run of the tests.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> FilesOf(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const fs::path& path : FilesOf(argv[i])) {
      std::ifstream file(path, std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      if (!file) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        return EXIT_FAILURE;
      }
      std::fprintf(stderr, "%s\n", path.c_str());  // the last one is what a crash is about
      deepencoder::fuzz::TryInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++inputs;
    }
  }
  if (inputs == 0) std::fprintf(stderr, "no inputs: an empty corpus tests nothing\n");
  return inputs > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
