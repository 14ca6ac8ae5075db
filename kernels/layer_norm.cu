#include "kernels/arguments.h"
#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/layer_norm.h"

namespace deepencoder::kernels {
namespace {

constexpr int kWarps = 8;  // rows a block

// A row over a warp: lane l holds elements 8*(32*i + l) .. +8 for i = 0 .. width/256 - 1.
template <int width>
struct Row {
  static constexpr int kChunks = width / (32 * kVector);
  float value[kChunks][kVector];

  static __device__ __forceinline__ int Column(int chunk) {
    return kVector * (32 * chunk + static_cast<int>(threadIdx.x));
  }

  template <typename T>
  __device__ __forceinline__ void Load(const T* row) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) Load8(row + Column(i), value[i]);
  }
  template <typename T>
  __device__ __forceinline__ void Add(const T* row) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      float other[kVector];
      Load8(row + Column(i), other);
#pragma unroll
      for (int e = 0; e < kVector; ++e) value[i][e] += other[e];
    }
  }
  template <typename T>
  __device__ __forceinline__ void Store(T* row) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) Store8(row + Column(i), value[i]);
  }
  // Takes the mean off and returns 1 / deviation.
  __device__ __forceinline__ float Centre(float eps) {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kChunks; ++i)
#pragma unroll
      for (int e = 0; e < kVector; ++e) sum += value[i][e];
    const float mean = WarpSum(sum) * (1.f / width);
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < kChunks; ++i)
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        value[i][e] -= mean;
        squares += value[i][e] * value[i][e];
      }
    return rsqrtf(WarpSum(squares) * (1.f / width) + eps);
  }
  __device__ __forceinline__ void Transform(float scale, const Row& weight, const Row& bias) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i)
#pragma unroll
      for (int e = 0; e < kVector; ++e)
        value[i][e] = value[i][e] * scale * weight.value[i][e] + bias.value[i][e];
  }
};

// kEarly: weight and bias are on their way before the kernel waits for its input. That takes registers which many
// rows need more: up to kFewRows.
constexpr int64_t kFewRows = 4608;

template <typename X, typename Y, int width, bool kEarly>
__global__ void __launch_bounds__(32 * kWarps) LayerNormKernel(LayerNormArgs args) {
  Row<width> weight, bias, row;
  if constexpr (kEarly) weight.Load(args.weight), bias.Load(args.bias);
  BeginKernel();
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (r >= args.rows) return;
  row.Load(static_cast<const X*>(args.x) + r * width);
  if (args.add != nullptr) row.Add(static_cast<const X*>(args.add) + r % args.add_rows * width);
  if (args.sum != nullptr) row.Store(static_cast<X*>(args.sum) + r * width);
  const float scale = row.Centre(args.eps);
  if constexpr (!kEarly) weight.Load(args.weight), bias.Load(args.bias);
  row.Transform(scale, weight, bias);
  row.Store(static_cast<Y*>(args.y) + r * width);
}

template <typename T, typename Y>
__global__ void __launch_bounds__(32 * kWarps) ClipEmbedKernel(ClipEmbedArgs args) {
  constexpr int kWidth = 1024;
  Row<kWidth> weight, bias, row;
  weight.Load(args.weight), bias.Load(args.bias);
  BeginKernel();
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (r >= static_cast<int64_t>(args.batch) * args.tokens) return;
  const int64_t image = r / args.tokens;
  const int64_t token = r % args.tokens;
  const T* features = static_cast<const T*>(args.features);
  row.Load(token == 0 ? static_cast<const T*>(args.class_row)
                      : features + (image * (args.tokens - 1) + token - 1) * kWidth);
  row.Add(static_cast<const T*>(args.positions) + token * kWidth);
  row.Transform(row.Centre(args.eps), weight, bias);
  row.Store(static_cast<Y*>(args.y) + r * kWidth);
}

template <typename X, typename Y, int width>
Status LaunchRows(const LayerNormArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.rows, kWarps))), block(32, kWarps);
  return LaunchKernel(args.rows <= kFewRows ? LayerNormKernel<X, Y, width, true>
                                            : LayerNormKernel<X, Y, width, false>,
                      grid, block, 0, stream, args);
}

template <typename X, typename Y>
Status LaunchWidth(const LayerNormArgs& args, cudaStream_t stream) {
  switch (args.width) {
    case 256:
      return LaunchRows<X, Y, 256>(args, stream);
    case 768:
      return LaunchRows<X, Y, 768>(args, stream);
    case 1024:
      return LaunchRows<X, Y, 1024>(args, stream);
    default:
      return InvalidArgument("layer norm: width " + std::to_string(args.width) +
                             " is not 256, 768 or 1024");
  }
}

}  // namespace

Status LaunchLayerNorm(const LayerNormArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckRange(args.rows, 1, int64_t{1} << 31, "layer norm: rows"));
  DEEPENCODER_RETURN(CheckPointer(args.x, "layer norm: x"));
  DEEPENCODER_RETURN(CheckPointer(args.y, "layer norm: y"));
  DEEPENCODER_RETURN(CheckPointer(args.weight, "layer norm: weight"));
  DEEPENCODER_RETURN(CheckPointer(args.bias, "layer norm: bias"));
  if (args.add != nullptr) {
    DEEPENCODER_RETURN(CheckPointer(args.add, "layer norm: add"));
    DEEPENCODER_RETURN(CheckRange(args.add_rows, 1, args.rows, "layer norm: add_rows"));
  }
  if (args.sum != nullptr) DEEPENCODER_RETURN(CheckPointer(args.sum, "layer norm: sum"));
  const DType x = args.x_type, y = args.y_type;
  if (x == DType::kBf16 && y == DType::kBf16)
    return LaunchWidth<__nv_bfloat16, __nv_bfloat16>(args, stream);
  if (x == DType::kFp16 && y == DType::kFp16) return LaunchWidth<__half, __half>(args, stream);
  if (x == DType::kFp32 && y == DType::kBf16)
    return LaunchWidth<float, __nv_bfloat16>(args, stream);
  if (x == DType::kFp32 && y == DType::kFp16) return LaunchWidth<float, __half>(args, stream);
  return InvalidArgument("layer norm: x " + std::string(Name(x)) + " to y " + std::string(Name(y)) +
                         " is not among bf16 to bf16, fp16 to fp16, fp32 to either");
}

Status LaunchClipEmbed(const ClipEmbedArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckModelType(args.type, "clip embed: type"));
  DEEPENCODER_RETURN(CheckRange(args.batch, 1, 1 << 16, "clip embed: batch"));
  DEEPENCODER_RETURN(CheckRange(args.tokens, 2, 1 << 16, "clip embed: tokens"));
  DEEPENCODER_RETURN(CheckPointer(args.features, "clip embed: features"));
  DEEPENCODER_RETURN(CheckPointer(args.class_row, "clip embed: class_row"));
  DEEPENCODER_RETURN(CheckPointer(args.positions, "clip embed: positions"));
  DEEPENCODER_RETURN(CheckPointer(args.weight, "clip embed: weight"));
  DEEPENCODER_RETURN(CheckPointer(args.bias, "clip embed: bias"));
  DEEPENCODER_RETURN(CheckPointer(args.y, "clip embed: y"));
  const dim3 block(32, kWarps);
  const dim3 grid(
      static_cast<unsigned>(CeilDiv(static_cast<int64_t>(args.batch) * args.tokens, kWarps)));
  const bool wide = args.y_type == DType::kFp32;
  if (!wide && args.y_type != args.type)
    return InvalidArgument("clip embed: y_type must be type or fp32");
  const auto kernel =
      args.type == DType::kBf16
          ? (wide ? ClipEmbedKernel<__nv_bfloat16, float>
                  : ClipEmbedKernel<__nv_bfloat16, __nv_bfloat16>)
          : (wide ? ClipEmbedKernel<__half, float> : ClipEmbedKernel<__half, __half>);
  return LaunchKernel(kernel, grid, block, 0, stream, args);
}

}  // namespace deepencoder::kernels
