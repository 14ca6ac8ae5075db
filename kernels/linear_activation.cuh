// The model's two activations in fp32, exact to about an fp32 rounding of their largest values.
#pragma once

#include <cuda_runtime.h>

#include "kernels/linear.h"

namespace deepencoder::kernels {

__device__ __forceinline__ float Exp2Approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float ReciprocalApprox(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// max(x, 0) that passes NaN on.
__device__ __forceinline__ float ReluNan(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}

// x/2 (1 + erf(x/sqrt 2)) = max(x, 0) - |x| Phi(-|x|), Phi the normal distribution.
//
// log2 Phi(-a) is smooth, so a polynomial and one exp2 do: the minimax fit of degree 6 on [0, 5.6] for
// the error of a Phi(-a), 0.6e-7 absolute and 0.6e-3 relative at once. With the roundings of fp32 the
// result is within 2e-7 of the exact value everywhere, and small results (x < -3) keep their relative
// precision, which 1 + erf(x) loses. Past 8 the second term is below 1e-14.
__device__ __forceinline__ float Gelu(float x) {
  const float a = fminf(fabsf(x), 8.0f);
  float p = 3.44948324e-05f;
  p = fmaf(p, a, -7.79944257e-04f);
  p = fmaf(p, a, 8.11141853e-03f);
  p = fmaf(p, a, -5.34533110e-02f);
  p = fmaf(p, a, -4.58744467e-01f);
  p = fmaf(p, a, -1.15120908e+00f);
  p = fmaf(p, a, -9.99992425e-01f);
  return fmaf(-a, Exp2Approx(p), ReluNan(x));
}

// x sigmoid(1.702 x); 2.4554669 = 1.702 log2 e.
__device__ __forceinline__ float QuickGelu(float x) {
  return x * ReciprocalApprox(1.0f + Exp2Approx(-2.4554669f * x));
}

template <Epilogue epilogue>
__device__ __forceinline__ float Activate(float x) {
  if constexpr (epilogue == Epilogue::kGelu) return Gelu(x);
  if constexpr (epilogue == Epilogue::kQuickGelu) return QuickGelu(x);
  return x;
}

}  // namespace deepencoder::kernels
