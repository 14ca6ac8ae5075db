// Internal to the files that are compiled once for each instruction set.
#pragma once

#include "encoder/cpu/kernels.h"

namespace deepencoder::cpu::DEEPENCODER_ISA {

void LayerNorm(const LayerNormArgs& args);

}  // namespace deepencoder::cpu::DEEPENCODER_ISA
