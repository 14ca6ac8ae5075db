// Which tokens attend to which: the three attentions of the encoder over one kernel.
//
// `qkv` is [tokens][3 * width] in the kernel's element type, a row being [q | k | v], each head-
// major; `out` is [tokens][width]. Tokens are in row-major order of their grid.
#pragma once

#include <cstddef>

#include "encoder/cpu/kernels.h"

namespace deepencoder::cpu {

struct Workspace;

AttentionShape WindowShape();  // 14 x 14 of SAM
AttentionShape SamGlobalShape(int grid);
AttentionShape ClipShape(int output_grid);  // class token included

// Of one thread of WindowAttention.
size_t WindowScratchBytes(const AttentionKernel& kernel);

// SAM's windows of 14 x 14 tokens. Windows at the right and bottom edge reach past the grid: such a
// position is a live key whose q, k and v are the bias of the qkv product, `padding` ([3 * 768]);
// it is never a query and never masked. Nothing is padded or copied for it.
void WindowAttention(const AttentionKernel& kernel, size_t element_bytes, int grid,
                     const std::byte* qkv, const std::byte* padding, const RelPosPair& tables,
                     std::byte* out, Workspace& workspace);

// Every token attends to every token, in `heads` heads; `tables` is unused unless shape.relative.
void GlobalAttention(const AttentionKernel& kernel, size_t element_bytes,
                     const AttentionShape& shape, int heads, const std::byte* qkv,
                     const RelPosPair& tables, std::byte* out, Workspace& workspace);

}  // namespace deepencoder::cpu
