#include "kernels/gemm_sm90.h"

#include <algorithm>
#include <string>

#include "kernels/arguments.h"
#include "kernels/gemm_sm90_plan.h"
#include "kernels/launch.h"
#include "kernels/sm90/tensor_map.h"

namespace deepencoder::kernels {

#ifdef DEEPENCODER_SM90A
namespace {

using gemm_sm90::kTilings;
using gemm_sm90::Tiling;

// Up to here most blocks have one tile and begin while the kernel before still runs. With more rows a block begins as
// the last of that kernel end, and all the weights in front of its first rows would only be in their way.
constexpr int kFewRows = 1664;

cudaLaunchAttribute ClusterAttribute(const Tiling& tiling) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = tiling.cluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  return attribute;
}

class Sm90Product final : public LinearProduct {
 public:
  Sm90Product(const LinearShape& shape, const Tiling& tiling, const void* kernel, int blocks)
      : shape_(shape), tiling_(tiling), kernel_(kernel), blocks_(blocks) {
    const int cluster_rows = tiling.rows * tiling.cluster;
    params_.ldr = shape.ldr;
    params_.ldy = shape.ldy;
    params_.rows = GroupRows(shape);
    params_.n = shape.n;
    params_.first_k_steps = static_cast<int>(CeilDiv(shape.k, gemm_sm90::kTileK));
    params_.k_steps =
        params_.first_k_steps + static_cast<int>(CeilDiv(shape.k2, gemm_sm90::kTileK));
    params_.second_k = shape.k;
    params_.row_tiles = static_cast<int>(CeilDiv(params_.rows, cluster_rows));
    params_.column_tiles = static_cast<int>(CeilDiv(shape.n, tiling.columns));
    params_.tiles = params_.row_tiles * params_.column_tiles * Groups(shape);
  }

  Status Launch(const LinearBuffers& buffers, void* /*workspace*/, size_t /*workspace_bytes*/,
                cudaStream_t stream) const override {
    CUtensorMap x, x2, weight;
    DEEPENCODER_RETURN(EncodeRows(buffers.x, shape_.k, shape_.ldx, GroupStride(), &x));
    x2 = x;  // never read if there is none
    if (shape_.k2 != 0) {
      DEEPENCODER_RETURN(
          EncodeRows(buffers.x2, shape_.k2, shape_.ldx2, params_.rows * shape_.ldx2, &x2));
    }
    const uint64_t weight_k = shape_.k + shape_.k2;
    const uint32_t weight_rows = tiling_.columns / tiling_.cluster;
    DEEPENCODER_RETURN(sm90::EncodeTensorMap<2>(&weight, shape_.type, buffers.weight,
                                                {weight_k, static_cast<uint64_t>(shape_.n)},
                                                {weight_k * 2}, {gemm_sm90::kTileK, weight_rows}));
    gemm_sm90::Params params = params_;
    params.bias = buffers.bias;
    params.residual = buffers.residual;
    params.y = buffers.y;
    if (OverlapLaunches::active() && shape_.m <= kFewRows) {
      params.early_steps = std::min(tiling_.stages, params.k_steps);
    }
    void* arguments[] = {&x, &x2, &weight, &params};
    cudaLaunchAttribute attributes[2];
    const cudaLaunchConfig_t config = Config(stream, attributes);
    DEEPENCODER_CUDA_RETURN(cudaLaunchKernelExC(&config, kernel_, arguments));
    return {};
  }

  size_t workspace_bytes() const override { return 0; }

  std::string name() const override {
    return "sm90 " + std::to_string(tiling_.rows) + "x" + std::to_string(tiling_.columns) +
           " cluster " + std::to_string(tiling_.cluster) + (tiling_.in_turns() ? " in turns" : "");
  }

 private:
  int64_t GroupStride() const {
    return shape_.group_rows == 0 ? shape_.m * shape_.ldx : shape_.group_stride;
  }

  // Tiles of x or x2: [group][row][k].
  Status EncodeRows(const void* base, int k, int64_t ld, int64_t group_stride,
                    CUtensorMap* map) const {
    return sm90::EncodeTensorMap<3>(
        map, shape_.type, base,
        {static_cast<uint64_t>(k), static_cast<uint64_t>(params_.rows),
         static_cast<uint64_t>(Groups(shape_))},
        {static_cast<uint64_t>(ld) * 2, static_cast<uint64_t>(group_stride) * 2},
        {gemm_sm90::kTileK, static_cast<uint32_t>(tiling_.rows), 1});
  }

  cudaLaunchConfig_t Config(cudaStream_t stream, cudaLaunchAttribute (&attributes)[2]) const {
    attributes[0] = ClusterAttribute(tiling_);
    attributes[1] = OverlapAttribute();
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(std::min(blocks_, params_.tiles * tiling_.cluster));
    config.blockDim = dim3(tiling_.threads());
    config.dynamicSmemBytes = tiling_.shared_bytes();
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = OverlapLaunches::active() ? 2 : 1;
    return config;
  }

  LinearShape shape_;
  Tiling tiling_;
  const void* kernel_;
  int blocks_;  // that run at a time
  gemm_sm90::Params params_{};
};

// How many blocks of a kernel the current device runs at a time, in whole clusters.
Status ResidentBlocks(const void* kernel, const Tiling& tiling, int* blocks) {
  DEEPENCODER_CUDA_RETURN(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(tiling.shared_bytes())));
  cudaLaunchAttribute cluster = ClusterAttribute(tiling);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(tiling.cluster);
  config.blockDim = dim3(tiling.threads());
  config.dynamicSmemBytes = tiling.shared_bytes();
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  DEEPENCODER_CUDA_RETURN(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  *blocks = clusters * tiling.cluster;
  return {};
}

}  // namespace

Status AddSm90Products(const LinearShape& shape, LinearProducts* products) {
  int device = 0, major = 0, minor = 0;
  DEEPENCODER_CUDA_RETURN(cudaGetDevice(&device));
  DEEPENCODER_CUDA_RETURN(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  DEEPENCODER_CUDA_RETURN(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (major != 9 || minor != 0) return {};
  // The last step of x would read columns of W that belong to x2.
  if (shape.k2 != 0 && shape.k % gemm_sm90::kTileK != 0) return {};
  for (int i = 0; i < gemm_sm90::kTilingCount; ++i) {
    const Tiling& tiling = kTilings[i];
    const void* const kernel =
        shape.type == DType::kBf16
            ? gemm_sm90::FindKernelBf16(i, shape.y_type, shape.epilogue, shape.residual)
            : gemm_sm90::FindKernelFp16(i, shape.y_type, shape.epilogue, shape.residual);
    if (kernel == nullptr) continue;
    int blocks = 0;
    DEEPENCODER_RETURN(ResidentBlocks(kernel, tiling, &blocks));
    if (blocks == 0) continue;
    products->push_back(std::make_shared<Sm90Product>(shape, tiling, kernel, blocks));
  }
  return {};
}
#else
Status AddSm90Products(const LinearShape& /*shape*/, LinearProducts* /*products*/) { return {}; }
#endif

}  // namespace deepencoder::kernels
