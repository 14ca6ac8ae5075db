#include "encoder/cuda/memory.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace deepencoder::cuda {
namespace {

// An allocation's error that is not sticky stays where the next launch would take it for its own.
cudaError_t Cleared(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

}  // namespace

const char* Name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kWeights:
      return "weights";
    case MemoryKind::kWorkspace:
      return "workspace";
    case MemoryKind::kGraphs:
      return "graphs";
    case MemoryKind::kViews:
      return "views";
  }
  return "";
}

void MemoryAccount::Use::RaisePeak(int64_t bytes) {
  int64_t most = peak.load(std::memory_order_relaxed);
  while (bytes > most && !peak.compare_exchange_weak(most, bytes, std::memory_order_relaxed)) {
  }
}

void MemoryAccount::Add(MemoryKind kind, int64_t bytes) {
  Use& use = use_[Index(kind)];
  use.RaisePeak(use.current.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

void MemoryAccount::Set(MemoryKind kind, int64_t bytes) {
  Use& use = use_[Index(kind)];
  use.current.store(bytes, std::memory_order_relaxed);
  use.RaisePeak(bytes);
}

std::atomic<int64_t>& LoadedCode(int device) {
  static std::mutex mutex;
  // Never destroyed: it is read until the process ends. A map's elements keep their places.
  static auto& devices = *new std::map<int, std::atomic<int64_t>>;
  const std::lock_guard lock(mutex);
  return devices[device];
}

Status FreeMemory(int64_t* bytes) {
  size_t free = 0, total = 0;
  DEEPENCODER_CUDA_RETURN(cudaMemGetInfo(&free, &total));
  *bytes = static_cast<int64_t>(free);
  return {};
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
  std::swap(account_, other.account_);
  return *this;
}

Status DeviceBuffer::Create(size_t bytes, MemoryKind kind, MemoryAccount* account,
                            DeviceBuffer* buffer) {
  void* data = nullptr;
  if (const cudaError_t error = Cleared(cudaMalloc(&data, bytes)); error != cudaSuccess) {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return {error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kDevice,
            std::string(Name(kind)) + ": " + std::to_string(bytes >> 20) +
                " MiB of device memory: " + cudaGetErrorString(error) + " (" +
                std::to_string(free >> 20) + " of " + std::to_string(total >> 20) + " MiB free)"};
  }
  DeviceBuffer made;
  made.data_ = data, made.bytes_ = bytes, made.kind_ = kind, made.account_ = account;
  account->Add(kind, static_cast<int64_t>(bytes));
  *buffer = std::move(made);
  return {};
}

void DeviceBuffer::Free() {
  if (data_ == nullptr) return;
  cudaFree(data_);  // fails only if the context is lost, and then nothing is left to free
  account_->Add(kind_, -static_cast<int64_t>(bytes_));
  data_ = nullptr;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Status PinnedBuffer::Create(size_t bytes, PinnedBuffer* buffer) {
  PinnedBuffer made;
  DEEPENCODER_CUDA_RETURN(Cleared(cudaMallocHost(&made.data_, bytes)));
  made.bytes_ = bytes;
  *buffer = std::move(made);
  return {};
}

void PinnedBuffer::Free() {
  if (data_ != nullptr) cudaFreeHost(data_);
  data_ = nullptr;
}

}  // namespace deepencoder::cuda
