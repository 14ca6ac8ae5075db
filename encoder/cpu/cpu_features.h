// What this processor can run. Found once by CPUID; nothing else in the backend asks.
#pragma once

#include <string>
#include <vector>

namespace deepencoder::cpu {

// Instruction sets the vector kernels are compiled for, in ascending order of speed. kBaseline is
// whatever the compiler targets by default (SSE2 on x86-64) and runs everywhere.
enum class Isa { kBaseline, kAvx2, kAvx512 };

struct CpuFeatures {
  std::string name;       // "Intel(R) Xeon(R) ..."; "unknown CPU" where CPUID does not say
  std::vector<Isa> isas;  // usable here, ascending; the last is the one to use
  bool amx_bf16 =
      false;  // tiles for bf16 and the AVX-512 (bf16 conversions included) used beside them
  Isa best() const { return isas.back(); }
};

// Asks the kernel for the AMX tile state as a side effect, which covers every thread of the process
// that is started afterwards, and the caller. Thread-safe.
const CpuFeatures& Cpu();

}  // namespace deepencoder::cpu
