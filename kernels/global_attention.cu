#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "kernels/arguments.h"
#include "kernels/device.h"
#include "kernels/global_attention.h"
#include "kernels/global_attention_portable.h"
#include "kernels/global_attention_sm90.h"

namespace deepencoder::kernels {
namespace {

constexpr int kHead = kGlobalAttentionHeadSize;

#ifdef DEEPENCODER_SM90A
constexpr bool kHopperBuilt = true;
#else
constexpr bool kHopperBuilt = false;
#endif

Status CheckShape(const GlobalAttentionArgs& args) {
  constexpr int kMost = std::numeric_limits<int>::max();
  DEEPENCODER_RETURN(CheckModelType(args.type, "global attention: type"));
  DEEPENCODER_RETURN(CheckRange(args.batch, 1, 65535, "global attention: batch"));
  DEEPENCODER_RETURN(CheckRange(args.heads, 1, 65535, "global attention: heads"));
  DEEPENCODER_RETURN(CheckRange(args.height, 1, 65535, "global attention: height"));
  DEEPENCODER_RETURN(CheckRange(args.width, 1, 65535, "global attention: width"));
  const int64_t tokens = static_cast<int64_t>(args.height) * args.width;
  DEEPENCODER_RETURN(CheckRange(tokens, 1, kMost / 2, "global attention: height * width"));
  // Work items are numbered by an int; a kernel's tile has at least 16 queries.
  const int64_t planes = static_cast<int64_t>(args.batch) * args.heads;
  return CheckRange(planes * CeilDiv(tokens, 16), 1, kMost / 2,
                    "global attention: batch * heads * height * width / 16");
}

// Every stride that is used (of a dimension longer than 1) a positive multiple of 8 elements: 16
// bytes.
Status CheckStrides(const GlobalAttentionArgs& args, const AttentionStrides& strides,
                    const char* name) {
  constexpr int64_t kMost = (int64_t{1} << 39) - 8;  // the copy engine's limit, 2^40 bytes
  const int64_t tokens = static_cast<int64_t>(args.height) * args.width;
  const struct {
    int64_t stride, length;
    const char* dimension;
  } all[] = {{strides.batch, args.batch, "batch"},
             {strides.token, tokens, "token"},
             {strides.head, args.heads, "head"}};
  for (const auto& [stride, length, dimension] : all) {
    if (length == 1) continue;
    const std::string what = std::string("global attention: ") + name + " " + dimension + " stride";
    DEEPENCODER_RETURN(CheckRange(stride, kHead, kMost, what.c_str()));
    if (stride % 8 != 0) {
      return InvalidArgument(what + " is " + std::to_string(stride) + ", must be a multiple of 8");
    }
  }
  return {};
}

// First and one past the last byte.
using Extent = std::pair<uintptr_t, uintptr_t>;

Extent ExtentOf(const GlobalAttentionArgs& args, const void* base,
                const AttentionStrides& strides) {
  const int64_t tokens = static_cast<int64_t>(args.height) * args.width;
  const int64_t elements = (args.batch - 1) * strides.batch + (tokens - 1) * strides.token +
                           (args.heads - 1) * strides.head + kHead;
  const auto first = reinterpret_cast<uintptr_t>(base);
  return {first, first + elements * SizeOf(args.type)};
}

Status CheckPointers(const GlobalAttentionArgs& args, int device) {
  DEEPENCODER_RETURN(CheckDevicePointer(args.q, "global attention: q", device));
  DEEPENCODER_RETURN(CheckDevicePointer(args.k, "global attention: k", device));
  DEEPENCODER_RETURN(CheckDevicePointer(args.v, "global attention: v", device));
  DEEPENCODER_RETURN(CheckDevicePointer(args.rel_h, "global attention: rel_h", device));
  DEEPENCODER_RETURN(CheckDevicePointer(args.rel_w, "global attention: rel_w", device));
  DEEPENCODER_RETURN(CheckDevicePointer(args.out, "global attention: out", device));
  if (args.repeated_rows != nullptr) {
    DEEPENCODER_RETURN(CheckDevicePointer(args.repeated_rows, "global attention: repeated_rows",
                                          device, alignof(unsigned long long)));
  }
  const Extent out = ExtentOf(args, args.out, args.out_strides);
  const std::pair<const void*, const char*> inputs[] = {
      {args.q, "q"}, {args.k, "k"}, {args.v, "v"}};
  for (const auto& [base, name] : inputs) {
    const Extent in = ExtentOf(args, base, args.qkv_strides);
    if (out.first < in.second && in.first < out.second) {
      return InvalidArgument(std::string("global attention: out overlaps ") + name);
    }
  }
  return {};
}

Status LaunchHopper(const GlobalAttentionArgs& args, const DeviceLimits& device,
                    cudaStream_t stream) {
#ifdef DEEPENCODER_SM90A
  return args.type == DType::kBf16 ? LaunchHopperGlobalAttentionBf16(args, device, stream)
                                   : LaunchHopperGlobalAttentionFp16(args, device, stream);
#else
  static_cast<void>(args), static_cast<void>(device), static_cast<void>(stream);
  return {Code::kUnsupported,
          "global attention: built without the Hopper kernel (architecture 90a)"};
#endif
}

}  // namespace

Status LaunchGlobalAttention(const GlobalAttentionArgs& args, cudaStream_t stream) {
  DEEPENCODER_RETURN(CheckShape(args));
  DEEPENCODER_RETURN(CheckStrides(args, args.qkv_strides, "qkv"));
  DEEPENCODER_RETURN(CheckStrides(args, args.out_strides, "out"));
  DeviceLimits device;
  DEEPENCODER_RETURN(GetDeviceLimits(&device));
  DEEPENCODER_RETURN(CheckPointers(args, device.ordinal));

  const bool fits_hopper = kHopperBuilt && device.major == 9 && device.minor == 0 &&
                           HopperGlobalAttentionHasGrid(args.height, args.width);
  switch (args.kernel) {
    case GlobalAttentionKernel::kHopper:
      if (!fits_hopper) {
        return {Code::kUnsupported,
                "global attention: the Hopper kernel needs compute capability 9.0, a build for 90a "
                "and a "
                "square grid of 32, 40, 48, 64 or 80"};
      }
      return LaunchHopper(args, device, stream);
    case GlobalAttentionKernel::kAuto:
      if (fits_hopper) return LaunchHopper(args, device, stream);
      [[fallthrough]];
    case GlobalAttentionKernel::kPortable:
      break;
  }
  if (device.major < 8) {
    return {Code::kUnsupported,
            "global attention needs compute capability 8.0 or newer, the device has " +
                std::to_string(device.major) + "." + std::to_string(device.minor)};
  }
  return LaunchPortableGlobalAttention(args, device, stream);
}

}  // namespace deepencoder::kernels
