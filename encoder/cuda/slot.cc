#include "encoder/cuda/slot.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "encoder/cuda/views.h"
#include "encoder/model/config.h"
#include "kernels/arguments.h"

namespace deepencoder::cuda {
namespace {

// Patches in a batch from which it counts as large (BatchOrder): four views of 1024 pixels, eleven of 640. Measured on
// an H200: with all batches in order a pair of small ones takes 8 % longer and 3 % fewer gundam pages are encoded, with
// these no fewer than with none.
constexpr int64_t kLargeBatch = int64_t{4} * 64 * 64;

bool IsLarge(const EncoderPlan& plan) {
  const int64_t grid = GridOf(plan.side());
  return plan.batch() * grid * grid >= kLargeBatch;
}

}  // namespace

Status PlanSet::Create(const Weights& weights, const std::vector<int>& sides,
                       const std::vector<int>& buckets, kernels::LinearContext& linears,
                       PlanSet* plans) {
  for (const int side : sides) {
    for (const int bucket : buckets) {
      EncoderPlan plan;
      DEEPENCODER_RETURN(EncoderPlan::Create(weights, side, bucket, linears, &plan));
      plans->arena_bytes_ = std::max(plans->arena_bytes_, plan.arena_bytes());
      plans->workspace_bytes_ = std::max(plans->workspace_bytes_, plan.workspace_bytes());
      plans->reply_bytes_ = std::max(plans->reply_bytes_, plan.reply_bytes_per_image() * bucket);
      plans->largest_batch_ = std::max(plans->largest_batch_, bucket);
      plans->plans_.emplace(std::pair(side, bucket), std::move(plan));
    }
  }
  return {};
}

const EncoderPlan* PlanSet::Find(int side, int batch) const {
  const auto found = plans_.lower_bound({side, batch});
  return found == plans_.end() || found->first.first != side ? nullptr : &found->second;
}

// One array of each, `largest_batch` long, views first: both lie so in pinned and in device memory.
struct Slot::Tables {
  const uint8_t** views;
  kernels::ReplyPlace* places;

  static size_t Bytes(int batch) {
    return batch * (sizeof(const uint8_t*) + sizeof(kernels::ReplyPlace));
  }
  static Tables In(void* memory, int batch) {
    auto** views = static_cast<const uint8_t**>(memory);
    return {views, reinterpret_cast<kernels::ReplyPlace*>(views + batch)};
  }
};

Status Slot::Create(int device, const PlanSet& plans, bool graphs, BatchOrder* order,
                    MemoryAccount* account, std::unique_ptr<Slot>* slot) {
  DEEPENCODER_CUDA_RETURN(cudaSetDevice(device));
  std::unique_ptr<Slot> made(new Slot(device, plans, order, account));
  DEEPENCODER_RETURN(made->Allocate());
  if (graphs) {
    for (const auto& [key, plan] : plans.all()) DEEPENCODER_RETURN(made->Capture(plan));
  }
  *slot = std::move(made);
  return {};
}

Status Slot::Allocate() {
  DEEPENCODER_CUDA_RETURN(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  const size_t tables = Tables::Bytes(plans_.largest_batch());
  DEEPENCODER_RETURN(
      DeviceBuffer::Create(plans_.arena_bytes(), MemoryKind::kWorkspace, account_, &arena_));
  DEEPENCODER_RETURN(DeviceBuffer::Create(std::max<size_t>(plans_.workspace_bytes(), 16),
                                          MemoryKind::kWorkspace, account_, &workspace_));
  DEEPENCODER_RETURN(DeviceBuffer::Create(tables, MemoryKind::kWorkspace, account_, &tables_));
  for (Call& call : calls_) {
    DEEPENCODER_RETURN(PinnedBuffer::Create(tables, &call.tables));
    DEEPENCODER_RETURN(PinnedBuffer::Create(plans_.reply_bytes(), &call.reply));
    // The thread sleeps rather than spins while the device works: its core decodes images meanwhile.
    DEEPENCODER_CUDA_RETURN(cudaEventCreate(&call.begin));
    DEEPENCODER_CUDA_RETURN(cudaEventCreateWithFlags(&call.end, cudaEventBlockingSync));
    DEEPENCODER_CUDA_RETURN(
        cudaEventCreateWithFlags(&call.copied, cudaEventBlockingSync | cudaEventDisableTiming));
  }
  return {};
}

Slot::~Slot() {
  cudaSetDevice(device_);
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  for (const auto& [plan, graph] : graphs_) cudaGraphExecDestroy(graph);
  account_->Add(MemoryKind::kGraphs, -graph_bytes_);
  for (const Call& call : calls_) {
    for (cudaEvent_t event : {call.begin, call.end, call.copied}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

BatchTables Slot::DeviceTables() const {
  const Tables tables = Tables::In(tables_.data(), plans_.largest_batch());
  return {tables.views, tables.places};
}

Status Slot::Run(const EncoderPlan& plan, const PassTrace& trace) {
  return plan.Run(DeviceTables(), arena_.data(), workspace_.data(), stream_, trace);
}

Status Slot::RunTraced(const EncoderPlan& plan) {
  std::vector<std::byte> host;
  return Run(plan,
             [&](const char* operation, const std::string& algorithm, const void* output,
                 size_t bytes) -> Status {
               host.resize(bytes);
               DEEPENCODER_CUDA_RETURN(
                   cudaMemcpyAsync(host.data(), output, bytes, cudaMemcpyDeviceToHost, stream_));
               DEEPENCODER_CUDA_RETURN(cudaStreamSynchronize(stream_));
               const DeTraceStep step = {operation, algorithm.c_str(), host.data(), bytes};
               trace_(trace_context_, &step);
               return {};
             });
}

Status Slot::Capture(const EncoderPlan& plan) {
  int64_t free_before = 0, free_after = 0;
  DEEPENCODER_RETURN(FreeMemory(&free_before));
  DEEPENCODER_CUDA_RETURN(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  const Status recorded = Run(plan);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
  if (graph != nullptr && (!recorded.ok() || ended != cudaSuccess)) cudaGraphDestroy(graph);
  DEEPENCODER_RETURN(recorded);
  DEEPENCODER_CUDA_RETURN(ended);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  DEEPENCODER_CUDA_RETURN(made);
  graphs_[&plan] = executable;
  DEEPENCODER_CUDA_RETURN(cudaGraphUpload(executable, stream_));
  DEEPENCODER_CUDA_RETURN(cudaStreamSynchronize(stream_));
  DEEPENCODER_RETURN(FreeMemory(&free_after));
  // The device tells only what is free; other processes' allocations in between would be counted too.
  const int64_t bytes = std::max<int64_t>(free_before - free_after, 0);
  graph_bytes_ += bytes;
  account_->Add(MemoryKind::kGraphs, bytes);
  return {};
}

// Rows of the bucket past `count` repeat the first view: defined work, thrown away.
size_t Slot::FillTables(const EncoderPlan& plan, const DeEncodeItem* items, int count,
                        const Call& call) {
  const Tables tables = Tables::In(call.tables.data(), plans_.largest_batch());
  const size_t elements = plan.reply_bytes_per_image() / SizeOf(DType::kFp32);
  int64_t offset = 0;
  size_t wanted = 0;
  for (int i = 0; i < plan.batch(); ++i) {
    const bool pad = i >= count;
    const DeEncodeItem& item = items[pad ? 0 : i];
    const DType type = static_cast<DType>(item.dtype);
    tables.views[i] = reinterpret_cast<const Views*>(item.views)->data(item.view);
    tables.places[i] = {offset, type};
    offset += static_cast<int64_t>(elements * SizeOf(type));
    if (!pad) wanted = static_cast<size_t>(offset);
  }
  return wanted;
}

void Slot::Scatter(const EncoderPlan& plan, const DeEncodeItem* items, int count,
                   const Call& call) const {
  const Tables tables = Tables::In(call.tables.data(), plans_.largest_batch());
  const int lines = OutputGridOf(plan.side());
  for (int i = 0; i < count; ++i) {
    const size_t line_bytes = size_t{kEmbeddingWidth} * lines * SizeOf(tables.places[i].type);
    const auto* from = static_cast<const std::byte*>(call.reply.data()) + tables.places[i].offset;
    auto* to = static_cast<std::byte*>(items[i].rows);
    for (int y = 0; y < lines; ++y, from += line_bytes, to += items[i].line_stride) {
      std::memcpy(to, from, line_bytes);
    }
  }
}

namespace {

Status CheckItems(int device, int side, const DeEncodeItem* items, int count) {
  for (int i = 0; i < count; ++i) {
    const DeEncodeItem& item = items[i];
    const std::string name = "item " + std::to_string(i);
    const auto* views = reinterpret_cast<const Views*>(item.views);
    if (views == nullptr) return kernels::InvalidArgument(name + " has no views");
    DEEPENCODER_RETURN(
        kernels::CheckRange(item.view, 0, views->count() - 1, (name + ": view").c_str()));
    if (views->device() != device) {
      return kernels::InvalidArgument(name + ": its views are on device " +
                                      std::to_string(views->device()) + ", the slot on device " +
                                      std::to_string(device));
    }
    if (views->side(item.view) != side) {
      return kernels::InvalidArgument(name + " has a view of side " +
                                      std::to_string(views->side(item.view)) +
                                      " in a batch of side " + std::to_string(side));
    }
    DEEPENCODER_RETURN(
        kernels::CheckRange(item.dtype, DE_BF16, DE_FP32, (name + ": dtype").c_str()));
    if (item.rows == nullptr) return kernels::InvalidArgument(name + " has no rows to write to");
    const size_t line =
        size_t{kEmbeddingWidth} * OutputGridOf(side) * SizeOf(static_cast<DType>(item.dtype));
    if (item.line_stride < line) {
      return kernels::InvalidArgument(name + ": line_stride is " +
                                      std::to_string(item.line_stride) + ", a line has " +
                                      std::to_string(line) + " bytes");
    }
  }
  return {};
}

}  // namespace

Status Slot::LaunchEncoder(const EncoderPlan& plan, cudaGraphExec_t graph, const Call& call) {
  DEEPENCODER_CUDA_RETURN(cudaEventRecord(call.begin, stream_));
  if (trace_ != nullptr) {
    DEEPENCODER_RETURN(RunTraced(plan));
  } else if (graph != nullptr) {
    DEEPENCODER_CUDA_RETURN(cudaGraphLaunch(graph, stream_));
  } else {
    DEEPENCODER_RETURN(Run(plan));
  }
  DEEPENCODER_CUDA_RETURN(cudaEventRecord(call.end, stream_));
  return {};
}

Status Slot::Launch(const EncoderPlan& plan, const DeEncodeItem* items, int count, Call& call,
                    DeEncodeStats* stats) {
  const size_t reply_bytes = FillTables(plan, items, count, call);
  DEEPENCODER_CUDA_RETURN(cudaMemcpyAsync(tables_.data(), call.tables.data(), call.tables.bytes(),
                                          cudaMemcpyHostToDevice, stream_));
  const auto found = trace_ == nullptr ? graphs_.find(&plan) : graphs_.end();
  const cudaGraphExec_t graph = found == graphs_.end() ? nullptr : found->second;
  const auto launch = [&] { return LaunchEncoder(plan, graph, call); };
  DEEPENCODER_RETURN(IsLarge(plan) ? order_->Launch(stream_, launch) : launch());
  DEEPENCODER_CUDA_RETURN(cudaMemcpyAsync(call.reply.data(), arena_.at(plan.reply_offset()),
                                          reply_bytes, cudaMemcpyDeviceToHost, stream_));
  DEEPENCODER_CUDA_RETURN(cudaEventRecord(call.copied, stream_));
  *stats = {plan.batch(), graph != nullptr ? 1 : 0, 0};
  return {};
}

Status Slot::Encode(int side, const DeEncodeItem* items, int count, DeEncodeStats* stats,
                    const std::function<void()>& computed) {
  if (items == nullptr || stats == nullptr)
    return kernels::InvalidArgument("items or stats is null");
  DEEPENCODER_RETURN(kernels::CheckRange(count, 1, plans_.largest_batch(), "number of items"));
  const EncoderPlan* plan = plans_.Find(side, count);
  if (plan == nullptr) {
    return kernels::InvalidArgument("no plan for side " + std::to_string(side) +
                                    ": it was not among the sides to load");
  }
  DEEPENCODER_RETURN(CheckItems(device_, side, items, count));
  DEEPENCODER_CUDA_RETURN(cudaSetDevice(device_));

  Call& call = calls_[next_call_];
  next_call_ ^= 1;
  DEEPENCODER_RETURN(Launch(*plan, items, count, call, stats));
  DEEPENCODER_CUDA_RETURN(cudaEventSynchronize(call.end));
  float milliseconds = 0.f;
  DEEPENCODER_CUDA_RETURN(cudaEventElapsedTime(&milliseconds, call.begin, call.end));
  stats->compute_seconds = milliseconds * 1e-3;
  // What the next call writes on the device it writes behind the copy of these rows, in the stream's order.
  computed();
  DEEPENCODER_CUDA_RETURN(cudaEventSynchronize(call.copied));
  Scatter(*plan, items, count, call);
  return {};
}

Status Slot::Poison() {
  DEEPENCODER_CUDA_RETURN(cudaSetDevice(device_));
  DEEPENCODER_CUDA_RETURN(cudaMemsetAsync(arena_.data(), 0xFF, arena_.bytes(), stream_));
  DEEPENCODER_CUDA_RETURN(cudaMemsetAsync(workspace_.data(), 0xFF, workspace_.bytes(), stream_));
  DEEPENCODER_CUDA_RETURN(cudaStreamSynchronize(stream_));
  for (const Call& call : calls_) std::memset(call.reply.data(), 0xFF, call.reply.bytes());
  return {};
}

}  // namespace deepencoder::cuda
