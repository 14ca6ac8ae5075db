// A slot: a stream, an arena, tables and captured graphs. Runs one batch at a time, and brings the rows of one to
// where they go while the next one runs.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "encoder/backend/cuda_abi.h"
#include "encoder/cuda/batch_order.h"
#include "encoder/cuda/encoder_plan.h"
#include "encoder/cuda/memory.h"

namespace deepencoder::cuda {

// Plans of every (side, bucket), shared by the slots of a device. Immutable once made.
class PlanSet {
 public:
  // Measures every product that is new: seconds the first time.
  static Status Create(const Weights& weights, const std::vector<int>& sides,
                       const std::vector<int>& buckets, kernels::LinearContext& linears,
                       PlanSet* plans);

  // The plan of the smallest bucket that holds `batch` views; null if the side is unknown or the batch too large.
  const EncoderPlan* Find(int side, int batch) const;
  const std::map<std::pair<int, int>, EncoderPlan>& all() const { return plans_; }

  size_t arena_bytes() const { return arena_bytes_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  size_t reply_bytes() const { return reply_bytes_; }
  int largest_batch() const { return largest_batch_; }

 private:
  std::map<std::pair<int, int>, EncoderPlan> plans_;  // by (side, batch)
  size_t arena_bytes_ = 0, workspace_bytes_ = 0, reply_bytes_ = 0;
  int largest_batch_ = 0;
};

class Slot {
 public:
  // `plans`, `order` (of the device) and `account` must outlive the slot. With graphs, captures one for every plan.
  static Status Create(int device, const PlanSet& plans, bool graphs, BatchOrder* order,
                       MemoryAccount* account, std::unique_ptr<Slot>* slot);
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // As deepencoder_cuda_encode_ahead.
  Status Encode(int side, const DeEncodeItem* items, int count, DeEncodeStats* stats,
                const std::function<void()>& computed);
  Status Poison();
  // As DeCudaApi::trace.
  void Trace(DeTrace trace, void* context) { trace_ = trace, trace_context_ = context; }

 private:
  struct Tables;  // what a batch needs on the device, as it lies in pinned and in device memory
  // What a call needs of the host's until it returns.
  struct Call {
    PinnedBuffer tables, reply;
    cudaEvent_t begin = nullptr, end = nullptr, copied = nullptr;
  };

  Slot(int device, const PlanSet& plans, BatchOrder* order, MemoryAccount* account)
      : device_(device), plans_(plans), order_(order), account_(account) {}
  Status Allocate();
  Status Capture(const EncoderPlan& plan);
  Status Run(const EncoderPlan& plan, const PassTrace& trace = {});
  Status RunTraced(const EncoderPlan& plan);
  BatchTables DeviceTables() const;
  // Starts a batch on the stream.
  Status Launch(const EncoderPlan& plan, const DeEncodeItem* items, int count, Call& call,
                DeEncodeStats* stats);
  // From `call.begin` to `call.end`.
  Status LaunchEncoder(const EncoderPlan& plan, cudaGraphExec_t graph, const Call& call);
  size_t FillTables(const EncoderPlan& plan, const DeEncodeItem* items, int count,
                    const Call& call);
  void Scatter(const EncoderPlan& plan, const DeEncodeItem* items, int count,
               const Call& call) const;

  int device_;
  const PlanSet& plans_;
  BatchOrder* order_;
  MemoryAccount* account_;
  cudaStream_t stream_ = nullptr;
  DeviceBuffer arena_, workspace_, tables_;
  std::array<Call, 2> calls_;
  int next_call_ = 0;
  std::map<const EncoderPlan*, cudaGraphExec_t> graphs_;
  int64_t graph_bytes_ = 0;
  DeTrace trace_ = nullptr;
  void* trace_context_ = nullptr;
};

}  // namespace deepencoder::cuda
