// A program of tests that is its own decode worker, and files that tell that worker what to do in place of decoding:
// what a decoder does that a hostile file has taken over.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/sandbox/decode_worker.h"
#include "server/sandbox/sandboxed_decoder.h"
#include "tests/encoder/image/test_files.h"

namespace deepencoder {

// A sound PNG whose comment, behind its header, says what to do.
inline FileBytes Order(const std::string& what) {
  return WithPngChunk(EncodePng(TestPicture(8, 8)),
                      PngChunk("tEXt", ToBytes("c" + std::string(1, '\0') + "do:" + what + ";")));
}

// What an Order says; nullopt for other files.
inline std::optional<std::string> OrderIn(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const size_t at = text.find("do:");
  if (at == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(at + 3, text.find(';', at) - at - 3));
}

struct Ends final : SandboxObserver {
  void OnDecodeWorkers(int count) override { alive = count; }
  void OnDecodeWorkerEnd(WorkerEnd end) override { ++ended[static_cast<size_t>(end)]; }
  int of(WorkerEnd end) const { return ended[static_cast<size_t>(end)]; }
  std::atomic<int> alive{0};
  std::array<std::atomic<int>, 4> ended{};
};

// For main(): a worker that decodes by `decode`, or the tests.
inline int RunWorkerOrTests(int argc, char** argv, const DecodeFunction& decode) {
  if (IsDecodeWorker(argc, argv)) return RunDecodeWorker(argc, argv, decode);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace deepencoder
