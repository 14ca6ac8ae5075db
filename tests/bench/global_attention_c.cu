// LaunchGlobalAttention for Python's ctypes, so that it can be timed beside its peers on one
// stream.
#include <cstdio>

#include "kernels/global_attention.h"

// qkv: the fused product. kernel: as GlobalAttentionKernel. 0, or the status code with its text in
// `error`.
extern "C" __attribute__((visibility("default"))) int deepencoder_global_attention(
    int fp16, int batch, int heads, int height, int width, const void* qkv, const void* rel_h,
    const void* rel_w, void* out, unsigned long long* repeated_rows, int kernel, void* stream,
    char* error, size_t error_size) {
  using namespace deepencoder::kernels;  // NOLINT(google-build-using-namespace)
  GlobalAttentionArgs args =
      FusedGlobalAttention(fp16 != 0 ? deepencoder::DType::kFp16 : deepencoder::DType::kBf16, batch,
                           heads, height, width, qkv, rel_h, rel_w, out);
  args.repeated_rows = repeated_rows;
  args.kernel = static_cast<GlobalAttentionKernel>(kernel);
  const Status status = LaunchGlobalAttention(args, static_cast<cudaStream_t>(stream));
  std::snprintf(error, error_size, "%s", status.message().c_str());
  return static_cast<int>(status.code());
}
