// The whole encoder, 3 SAM blocks and 2 CLIP layers deep, against values of the reference.
#include "conformance.h"

#include <gtest/gtest.h>

namespace deepencoder {
namespace {

const char* const kFiles[] = {"mini.tiny.page_gray", "mini.small.photo_scene"};

class MiniConformance : public testing::TestWithParam<const char*> {
 protected:
  ConformanceCase Case() const { return {ConformanceData(), "mini.json", GetParam()}; }
};

// fp32 is what gates: several mistakes hide below bf16's own rounding.
TEST_P(MiniConformance, Fp32OnEveryInstructionSet) {
  for (const cpu::Isa isa : cpu::Cpu().isas) {
    SCOPED_TRACE(static_cast<int>(isa));
    ExpectConformance(MiniCheckpoint(), Case(), DType::kFp32, isa);
  }
}

TEST_P(MiniConformance, Bf16OnAmx) {
  if (!cpu::Cpu().amx_bf16) GTEST_SKIP() << cpu::Cpu().name << " has no AMX";
  ExpectConformance(MiniCheckpoint(), Case(), DType::kBf16, cpu::Cpu().best());
}

std::string ModeName(const testing::TestParamInfo<const char*>& instance) {
  return instance.param == kFiles[0] ? "Tiny" : "Small";
}

INSTANTIATE_TEST_SUITE_P(Files, MiniConformance, testing::ValuesIn(kFiles), ModeName);

}  // namespace
}  // namespace deepencoder
