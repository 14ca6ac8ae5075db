// The whole encoder at full depth against values of the reference, which are too large for the
// repository: skipped unless DEEPENCODER_CONFORMANCE_DIR holds them. The checkpoint (803 MB) is
// made once and kept.
#include <gtest/gtest.h>

#include <filesystem>

#include "conformance.h"

namespace deepencoder {
namespace {

const char* const kFiles[] = {"full.tiny.page_gray", "full.small.photo_scene",
                              "full.base.page_gray", "full.large.photo_scene"};

void ExpectAll(DType type) {
  const std::string folder = std::string(DEEPENCODER_CONFORMANCE_DIR) + "/encoder";
  if (!std::filesystem::exists(folder + "/full.json")) GTEST_SKIP() << "no values in " << folder;
  const std::unique_ptr<Checkpoint> checkpoint =
      SyntheticCheckpoint(DEEPENCODER_FULL_CHECKPOINT, 12, 24);
  ASSERT_NE(checkpoint, nullptr);
  for (const char* file : kFiles) {
    ExpectConformance(*checkpoint, {folder, "full.json", file}, type, cpu::Cpu().best());
  }
}

TEST(FullConformance, Fp32) { ExpectAll(DType::kFp32); }

TEST(FullConformance, Bf16OnAmx) {
  if (!cpu::Cpu().amx_bf16) GTEST_SKIP() << cpu::Cpu().name << " has no AMX";
  ExpectAll(DType::kBf16);
}

}  // namespace
}  // namespace deepencoder
