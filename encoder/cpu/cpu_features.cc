#include "encoder/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdint>
#include <cstring>

#include "encoder/backend/backend.h"

namespace deepencoder::cpu {
namespace {

#if defined(__x86_64__)

std::string BrandString() {
  uint32_t registers[12] = {};
  if (__get_cpuid_max(0x80000000u, nullptr) < 0x80000004u) return "unknown CPU";
  for (uint32_t i = 0; i < 3; ++i) {
    uint32_t* r = registers + 4 * i;
    __get_cpuid(0x80000002u + i, &r[0], &r[1], &r[2], &r[3]);
  }
  char text[sizeof registers + 1] = {};
  std::memcpy(text, registers, sizeof registers);
  const std::string brand = text;
  const size_t first = brand.find_first_not_of(' ');
  return first == std::string::npos ? "unknown CPU" : brand.substr(first);
}

// Tiles are 8 KiB of state that Linux saves only for processes that asked for it.
bool RequestTileState() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

CpuFeatures Detect() {
  CpuFeatures found;
  found.name = BrandString();
  found.isas = {Isa::kBaseline};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2) found.isas.push_back(Isa::kAvx2);
  if (avx512) found.isas.push_back(Isa::kAvx512);

  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // of leaf 7's edx
  const bool amx =
      __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & kAmxBf16) && (edx & kAmxTile);
  found.amx_bf16 = amx && avx512 && __builtin_cpu_supports("avx512bf16") && RequestTileState();
  return found;
}

#else

CpuFeatures Detect() { return {.name = "unknown CPU", .isas = {Isa::kBaseline}}; }

#endif

}  // namespace

const CpuFeatures& Cpu() {
  static const CpuFeatures found = Detect();
  return found;
}

}  // namespace deepencoder::cpu

namespace deepencoder {

DType BestCpuType() { return cpu::Cpu().amx_bf16 ? DType::kBf16 : DType::kFp32; }

}  // namespace deepencoder
