#include "encoder/cuda/batch_order.h"

namespace deepencoder::cuda {

Status BatchOrder::Create(std::unique_ptr<BatchOrder>* order) {
  std::unique_ptr<BatchOrder> made(new BatchOrder);
  DEEPENCODER_CUDA_RETURN(cudaEventCreateWithFlags(&made->last_, cudaEventDisableTiming));
  *order = std::move(made);
  return {};
}

BatchOrder::~BatchOrder() {
  if (last_ != nullptr) cudaEventDestroy(last_);
}

Status BatchOrder::Launch(cudaStream_t stream, const std::function<Status()>& launch) {
  const std::lock_guard lock(mutex_);
  DEEPENCODER_CUDA_RETURN(cudaStreamWaitEvent(stream, last_));
  DEEPENCODER_RETURN(launch());
  DEEPENCODER_CUDA_RETURN(cudaEventRecord(last_, stream));
  return {};
}

}  // namespace deepencoder::cuda
