// The Hopper kernel of global_attention.h and its launcher; the design is in
// global_attention_sm90_plan.cuh.
#pragma once

#include <algorithm>

#include "kernels/device.h"
#include "kernels/global_attention_sm90.h"
#include "kernels/global_attention_sm90_consumer.cuh"
#include "kernels/global_attention_sm90_plan.cuh"
#include "kernels/global_attention_sm90_producer.cuh"
#include "kernels/launch.cuh"
#include "kernels/sm90/mbarrier.cuh"
#include "kernels/sm90/registers.cuh"
#include "kernels/sm90/tensor_map.h"

namespace deepencoder::kernels::hopper_attention {

template <class P>
__device__ __forceinline__ void InitShared(Shared<P>& shared) {
  using sm90::BarrierInit;
  constexpr int kWarps = 4 * P::groups;  // consumers
  for (int i = 0; i < P::stages; ++i)
    BarrierInit(&shared.full[i], 1), BarrierInit(&shared.empty[i], kWarps);
  for (int i = 0; i < P::groups; ++i)
    BarrierInit(&shared.q_full[i], 1), BarrierInit(&shared.q_empty[i], 4);
  BarrierInit(&shared.tables_full, 1);
  BarrierInit(&shared.last_full, 1);
  BarrierInit(&shared.last_empty, kWarps);
  BarrierInit(&shared.verdict_given, kWarps);
  BarrierInit(&shared.verdict_read, kWarps);
  shared.failed = 0;
  sm90::BarrierInitFence();
}

template <class P>
__global__ void __launch_bounds__(P::threads, 1) Kernel(const __grid_constant__ Params params) {
  extern __shared__ unsigned char raw[];
  unsigned char* const smem = raw + (1024 - SharedAddress(raw) % 1024) % 1024;
  if (threadIdx.x == 0) {
    InitShared<P>(SharedOf<P>(smem));
    Producer<P>(params, smem).LoadTables();  // weights: no kernel before this one wrote them
  }
  BeginKernel();
  __syncthreads();
  if (threadIdx.x >= 128 * P::groups) {
    sm90::RegistersDown<P::producer_registers>();
    if (threadIdx.x == 128 * P::groups) Producer<P>(params, smem).Run();
  } else {
    sm90::RegistersUp<P::consumer_registers>();
    Consumer<P>(params, smem).Run();
  }
}

// ---------------------------------------------------------------- host

// (64, heads, tokens, batch), in boxes of `rows` rows of one head. A stride that no step uses may
// be anything.
template <class P>
Status TokensMap(CUtensorMap* map, const GlobalAttentionArgs& args, const void* base,
                 const AttentionStrides& strides, uint32_t rows) {
  const uint64_t dims[4] = {kHead, static_cast<uint64_t>(args.heads), P::tokens,
                            static_cast<uint64_t>(args.batch)};
  const auto bytes = [](int64_t stride, int length) -> uint64_t {
    return length > 1 ? 2 * stride : 2 * kHead;
  };
  const uint64_t steps[3] = {bytes(strides.head, args.heads), bytes(strides.token, P::tokens),
                             bytes(strides.batch, args.batch)};
  const uint32_t box[4] = {kHead, 1, rows, 1};
  return sm90::EncodeTensorMap<4>(map, args.type, base, dims, steps, box);
}

// The whole table and one row more, which is read as zeros.
template <class P>
Status TableMap(CUtensorMap* map, DType type, const void* base) {
  const uint64_t dims[2] = {kHead, 2 * P::grid - 1}, steps[1] = {2 * kHead};
  const uint32_t box[2] = {kHead, 2 * P::grid};
  return sm90::EncodeTensorMap<2>(map, type, base, dims, steps, box);
}

template <class P>
Status Launch(const GlobalAttentionArgs& args, const DeviceLimits& device, cudaStream_t stream) {
  Params params{};
  DEEPENCODER_RETURN(TokensMap<P>(&params.query, args, args.q, args.qkv_strides, 64));
  DEEPENCODER_RETURN(TokensMap<P>(&params.key, args, args.k, args.qkv_strides, P::keys));
  DEEPENCODER_RETURN(TokensMap<P>(&params.value, args, args.v, args.qkv_strides, P::keys));
  DEEPENCODER_RETURN(TokensMap<P>(&params.out, args, args.out, args.out_strides, 16));
  DEEPENCODER_RETURN(TableMap<P>(&params.rel_h, args.type, args.rel_h));
  DEEPENCODER_RETURN(TableMap<P>(&params.rel_w, args.type, args.rel_w));
  params.repeated_rows = args.repeated_rows;
  params.heads = args.heads;
  params.items = args.batch * args.heads * P::query_tiles;

  DEEPENCODER_RETURN(AllowSharedMemory<Kernel<P>>(device, P::shared_bytes));
  return LaunchKernel(Kernel<P>, std::min(params.items, device.multiprocessors), P::threads,
                      P::shared_bytes, stream, params);
}

// The fastest plans of those measured (lab_attention.md).
template <typename T>
Status LaunchGrid(const GlobalAttentionArgs& args, const DeviceLimits& device,
                  cudaStream_t stream) {
  switch (args.width) {
    case 32:
      return Launch<Plan<T, 32, 64, 2, 4, true>>(args, device, stream);
    case 40:
      return Launch<Plan<T, 40, 80, 3, 4, false>>(args, device, stream);
    case 48:
      return Launch<Plan<T, 48, 48, 3, 4, true>>(args, device, stream);
    case 64:
      return Launch<Plan<T, 64, 64, 3, 4, true>>(args, device, stream);
    case 80:
      return Launch<Plan<T, 80, 80, 2, 4, false>>(args, device, stream);
    default:
      return {Code::kUnsupported,
              "global attention: the Hopper kernel has no grid of " + std::to_string(args.width)};
  }
}

}  // namespace deepencoder::kernels::hopper_attention
