// Device and pinned memory with owners, counted by kind.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/status.h"

namespace deepencoder::cuda {

using kernels::Code;
using kernels::Status;

enum class MemoryKind { kWeights, kWorkspace, kGraphs, kViews };
inline constexpr int kMemoryKinds = 4;
const char* Name(MemoryKind kind);

// Bytes held on one device. Thread-safe.
class MemoryAccount {
 public:
  void Add(MemoryKind kind, int64_t bytes);  // negative: given back
  // For what is counted elsewhere; calls for one kind must not overlap, nor be mixed with Add.
  void Set(MemoryKind kind, int64_t bytes);
  size_t current(MemoryKind kind) const {
    return use_[Index(kind)].current.load(std::memory_order_relaxed);
  }
  size_t peak(MemoryKind kind) const {
    return use_[Index(kind)].peak.load(std::memory_order_relaxed);
  }

 private:
  static int Index(MemoryKind kind) { return static_cast<int>(kind); }
  struct Use {
    void RaisePeak(int64_t bytes);
    std::atomic<int64_t> current{0}, peak{0};
  };
  Use use_[kMemoryKinds];
};

// Bytes of kernels that the driver has loaded onto the device for this process, as far as backends saw it happen. They
// stay until the process ends, whichever backend they were loaded for. Lives as long as the process.
std::atomic<int64_t>& LoadedCode(int device);

// Of the current device, in this process or another.
Status FreeMemory(int64_t* bytes);

// cudaMalloc'ed on the device that is current at Create. Move-only. The account must outlive it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer() { Free(); }

  // Errors: kResourceExhausted, saying how much was asked for and how much is free.
  static Status Create(size_t bytes, MemoryKind kind, MemoryAccount* account, DeviceBuffer* buffer);

  void* data() const { return data_; }
  std::byte* at(size_t offset) const { return static_cast<std::byte*>(data_) + offset; }
  size_t bytes() const { return bytes_; }

 private:
  void Free();

  void* data_ = nullptr;
  size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kWorkspace;
  MemoryAccount* account_ = nullptr;
};

// Page-locked host memory. Move-only.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer() { Free(); }

  static Status Create(size_t bytes, PinnedBuffer* buffer);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void Free();

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace deepencoder::cuda
