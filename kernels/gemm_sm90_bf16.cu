#include "kernels/gemm_sm90.cuh"

namespace deepencoder::kernels::gemm_sm90 {

const void* FindKernelBf16(int tiling, DType y_type, Epilogue epilogue, bool adds_residual) {
  return FindKernel<__nv_bfloat16>(tiling, y_type, epilogue, adds_residual);
}

}  // namespace deepencoder::kernels::gemm_sm90
