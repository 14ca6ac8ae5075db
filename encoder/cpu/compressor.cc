#include "encoder/cpu/compressor.h"

#include <cstring>
#include <string>
#include <vector>

#include "encoder/cpu/parallel.h"
#include "encoder/model/config.h"

namespace deepencoder::cpu {
namespace {

constexpr int kKernel = 3;

// Patches of a 3 x 3 convolution with one zero of padding around, in the order [ky][kx][channel]:
// in [grid*grid][token_bytes] -> patches [(grid/stride)^2][9 * token_bytes].
void GatherNeighbours(int grid, int stride, size_t token_bytes, const std::byte* in,
                      std::byte* patches) {
  const int out_grid = grid / stride;
  ParallelFor(out_grid, [&](int row, int) {
    std::byte* to = patches + static_cast<size_t>(row) * out_grid * kKernel * kKernel * token_bytes;
    for (int column = 0; column < out_grid; ++column) {
      for (int ky = 0; ky < kKernel; ++ky) {
        for (int kx = 0; kx < kKernel; ++kx, to += token_bytes) {
          const int y = row * stride + ky - 1, x = column * stride + kx - 1;
          if (y < 0 || y >= grid || x < 0 || x >= grid) {
            std::memset(to, 0, token_bytes);
          } else {
            std::memcpy(to, in + (static_cast<size_t>(y) * grid + x) * token_bytes, token_bytes);
          }
        }
      }
    }
  });
}

std::vector<int> RowsOf(std::span<const int> sides, int stride) {
  std::vector<int> rows;
  for (const int side : sides) rows.push_back(GridOf(side) / stride * (GridOf(side) / stride));
  return rows;
}

}  // namespace

Compressor::Compressor(WeightLoader& loader, std::span<const int> sides) {
  const std::string prefix = "model.sam_model.";
  neck0_ = loader.Convolution(prefix + "neck.0", false, kSamWidth, 1,
                              {.width = kNeckWidth, .output = DType::kFp32}, RowsOf(sides, 1));
  neck1_ = loader.LayerNorm(prefix + "neck.1");
  neck2_ = loader.Convolution(prefix + "neck.2", false, kNeckWidth, kKernel,
                              {.width = kNeckWidth, .output = DType::kFp32}, RowsOf(sides, 1));
  neck3_ = loader.LayerNorm(prefix + "neck.3");
  net2_ = loader.Convolution(prefix + "net_2", false, kNeckWidth, kKernel,
                             {.width = kNet2Width, .output = loader.compute()}, RowsOf(sides, 2));
  net3_ = loader.Convolution(prefix + "net_3", false, kNet2Width, kKernel,
                             {.width = kNet3Width, .output = DType::kFp32}, RowsOf(sides, 4));
}

void Compressor::Run(const Compute& compute, int side, float* features,
                     Workspace& workspace) const {
  const int grid = GridOf(side), tokens = grid * grid;
  const size_t element = SizeOf(compute.type);
  // Three buffers take turns: patches in `wide`; sums of 256 floats a token in `narrow`, which has
  // room for 768 halves; tokens of the compute type in `residual`, once neck.0 has read it.
  auto* sums = reinterpret_cast<float*>(workspace.narrow);
  auto* normed = reinterpret_cast<std::byte*>(workspace.residual);

  compute.Cast(workspace.residual, static_cast<size_t>(tokens) * kSamWidth, workspace.wide);
  neck0_.Run(workspace.linear, tokens, workspace.wide, sums);
  compute.LayerNorm(sums, neck1_, kSamEps, kNeckWidth, tokens, compute.type, normed);

  GatherNeighbours(grid, 1, kNeckWidth * element, normed, workspace.wide);
  neck2_.Run(workspace.linear, tokens, workspace.wide, sums);
  compute.LayerNorm(sums, neck3_, kSamEps, kNeckWidth, tokens, compute.type, normed);

  GatherNeighbours(grid, 2, kNeckWidth * element, normed, workspace.wide);
  net2_.Run(workspace.linear, tokens / 4, workspace.wide, normed);
  GatherNeighbours(grid / 2, 2, kNet2Width * element, normed, workspace.wide);
  net3_.Run(workspace.linear, tokens / 16, workspace.wide, features);
}

}  // namespace deepencoder::cpu
