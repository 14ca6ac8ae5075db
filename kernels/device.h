// What launchers ask about the device they launch on. Legal while a stream is being captured: no
// call here waits, allocates or touches a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <string>

#include "kernels/arguments.h"
#include "kernels/status.h"

namespace deepencoder::kernels {

inline constexpr int kMaxDevices = 64;  // of a process

struct DeviceLimits {
  int ordinal = 0;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int shared_bytes = 0;  // of a block, with permission (AllowSharedMemory)
};

// Of the calling thread's current device.
inline Status GetDeviceLimits(DeviceLimits* limits) {
  DEEPENCODER_CUDA_RETURN(cudaGetDevice(&limits->ordinal));
  if (limits->ordinal >= kMaxDevices) {
    return {Code::kUnsupported, "device " + std::to_string(limits->ordinal) + ": only the first " +
                                    std::to_string(kMaxDevices) + " of a process are supported"};
  }
  const struct {
    int* value;
    cudaDeviceAttr attribute;
  } wanted[] = {{&limits->major, cudaDevAttrComputeCapabilityMajor},
                {&limits->minor, cudaDevAttrComputeCapabilityMinor},
                {&limits->multiprocessors, cudaDevAttrMultiProcessorCount},
                {&limits->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin}};
  for (const auto& [value, attribute] : wanted) {
    DEEPENCODER_CUDA_RETURN(cudaDeviceGetAttribute(value, attribute, limits->ordinal));
  }
  return {};
}

// Not null, aligned, and memory of this device (or managed).
inline Status CheckDevicePointer(const void* pointer, const char* name, int device,
                                 unsigned alignment = 16) {
  DEEPENCODER_RETURN(CheckPointer(pointer, name, alignment));
  cudaPointerAttributes attributes{};
  DEEPENCODER_CUDA_RETURN(cudaPointerGetAttributes(&attributes, pointer));
  if (attributes.type == cudaMemoryTypeManaged) return {};
  if (attributes.type != cudaMemoryTypeDevice) {
    return InvalidArgument(std::string(name) + " is not device memory");
  }
  if (attributes.device != device) {
    return InvalidArgument(std::string(name) + " lies on device " +
                           std::to_string(attributes.device) + ", the launch is for device " +
                           std::to_string(device));
  }
  return {};
}

// Lets `kernel` use `bytes` of dynamic shared memory a block on this device, always the same number
// for one kernel. Any thread; the runtime is asked once a device.
template <auto kernel>
Status AllowSharedMemory(const DeviceLimits& device, int bytes) {
  static std::array<std::atomic<bool>, kMaxDevices> allowed{};
  if (allowed[device.ordinal].load(std::memory_order_acquire)) return {};
  DEEPENCODER_CUDA_RETURN(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                               cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  allowed[device.ordinal].store(true, std::memory_order_release);
  return {};
}

}  // namespace deepencoder::kernels
