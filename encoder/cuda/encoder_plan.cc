#include "encoder/cuda/encoder_plan.h"

#include <algorithm>

#include "kernels/clip_attention.h"
#include "kernels/clip_rows.h"
#include "kernels/device.h"
#include "kernels/global_attention.h"
#include "kernels/launch.h"
#include "kernels/layer_norm.h"
#include "kernels/patches.h"
#include "kernels/window_attention.h"

namespace deepencoder::cuda {
namespace {

using kernels::Epilogue;
using kernels::Linear;
using kernels::LinearBuffers;
using kernels::LinearShape;

// CLIP's residual stream is fp32, as in the reference's inference; SAM's is of the model type.
constexpr DType kClipStreamType = DType::kFp32;
constexpr int kPatchElements = kPatchSide * kPatchSide * 3;
constexpr int kNeighbours = 9;

// Steps of a pass, for the lifetimes of buffers.
enum Step {
  kPatches,
  kSamBlocks,
  kNeck0,
  kNeck2,
  kNet2,
  kNet3,
  kClipLayers,
  kClipEnd,
  kProject,
  kWriteReply
};

}  // namespace

struct EncoderPlan::Pass {
  BatchTables tables;
  std::byte* arena;
  void* workspace;
  size_t workspace_bytes;
  cudaStream_t stream;
  const PassTrace& trace;

  Status Trace(const char* operation, const void* output, size_t bytes,
               const std::string& algorithm = {}) const {
    return trace ? trace(operation, algorithm, output, bytes) : Status();
  }
  Status Launch(const char* operation, const Linear& linear, const LinearBuffers& buffers) const {
    DEEPENCODER_RETURN(linear.Launch(buffers, workspace, workspace_bytes, stream));
    if (!trace) return {};
    const LinearShape& shape = linear.shape();
    return Trace(operation, buffers.y, size_t{1} * shape.m * shape.ldy * SizeOf(shape.y_type),
                 linear.algorithm());
  }
  Status Normalise(const char* operation, DType x_type, DType y_type, int64_t rows, int width,
                   const void* x, const Norm& norm, float eps, void* y) const {
    DEEPENCODER_RETURN(kernels::LaunchLayerNorm({.x_type = x_type,
                                                 .y_type = y_type,
                                                 .rows = rows,
                                                 .width = width,
                                                 .x = x,
                                                 .weight = norm.weight,
                                                 .bias = norm.bias,
                                                 .eps = eps,
                                                 .y = y},
                                                stream));
    return Trace(operation, y, static_cast<size_t>(rows) * width * SizeOf(y_type));
  }
};

Status EncoderPlan::Create(const Weights& weights, int side, int batch,
                           kernels::LinearContext& linears, EncoderPlan* plan) {
  const auto found = std::find_if(weights.sides.begin(), weights.sides.end(),
                                  [&](const SideWeights& tables) { return tables.side == side; });
  if (found == weights.sides.end()) {
    return kernels::InvalidArgument("view side " + std::to_string(side) +
                                    " was not among the sides to load");
  }
  if (batch < 1)
    return kernels::InvalidArgument("batch must be at least 1, is " + std::to_string(batch));
  kernels::DeviceLimits device;
  DEEPENCODER_RETURN(kernels::GetDeviceLimits(&device));
  EncoderPlan made;
  made.overlap_ = kernels::OverlapLaunches::Possible(device);
  made.weights_ = &weights;
  made.side_index_ = static_cast<int>(found - weights.sides.begin());
  made.side_ = side, made.batch_ = batch;
  made.grid_ = GridOf(side), made.output_grid_ = OutputGridOf(side);
  made.tokens_ = int64_t{batch} * made.grid_ * made.grid_;
  made.output_tokens_ = int64_t{batch} * made.output_grid_ * made.output_grid_;
  made.clip_tokens_ = made.output_tokens_ + batch;
  made.PlaceBuffers();
  DEEPENCODER_RETURN(made.PlanLinears(linears));
  *plan = std::move(made);
  return {};
}

void EncoderPlan::PlaceBuffers() {
  const size_t size = SizeOf(weights_->type), clip_size = SizeOf(kClipStreamType);
  const auto add = [&](int64_t rows, int columns, size_t element, Step first, Step last) {
    return arena_.Add(static_cast<size_t>(rows) * columns * element, first, last);
  };
  patches_ = add(tokens_, kPatchElements, size, kPatches, kPatches);
  stream_ = add(tokens_, kSamWidth, size, kPatches, kNeck0);
  row_ = add(tokens_, kSamWidth, size, kSamBlocks, kSamBlocks);
  wide_ = add(tokens_, kSamMlp, size, kSamBlocks, kSamBlocks);
  neck_ = add(tokens_, kNeckWidth, size, kNeck0, kNeck2);
  neck_patches_ = add(tokens_, kNeighbours * kNeckWidth, size, kNeck2, kNeck2);
  neck_out_ = add(tokens_, kNeckWidth, size, kNeck2, kNet2);
  net2_patches_ = add(tokens_ / 4, kNeighbours * kNeckWidth, size, kNet2, kNet2);
  net2_out_ = add(tokens_ / 4, kNet2Width, size, kNet2, kNet3);
  net3_patches_ = add(output_tokens_, kNeighbours * kNet2Width, size, kNet3, kNet3);
  features_ = add(output_tokens_, kNet3Width, size, kNet3, kProject);
  clip_stream_ = add(clip_tokens_, kClipWidth, clip_size, kClipLayers, kClipEnd);
  clip_row_ = add(clip_tokens_, kClipWidth, size, kClipLayers, kClipLayers);
  clip_wide_ = add(clip_tokens_, kClipMlp, size, kClipLayers, kClipLayers);
  clip_features_ = add(output_tokens_, kClipWidth, size, kClipEnd, kProject);
  rows_ = add(output_tokens_, kEmbeddingWidth, SizeOf(DType::kFp32), kProject, kWriteReply);
  reply_ =
      arena_.Add(static_cast<size_t>(batch_) * reply_bytes_per_image(), kWriteReply, kWriteReply);
  arena_.Place();
}

size_t EncoderPlan::Bytes(int64_t rows, int columns) const {
  return static_cast<size_t>(rows) * columns * SizeOf(weights_->type);
}

size_t EncoderPlan::reply_bytes_per_image() const {
  return static_cast<size_t>(output_grid_) * output_grid_ * kEmbeddingWidth * SizeOf(DType::kFp32);
}

Status EncoderPlan::PlanLinears(kernels::LinearContext& linears) {
  const DType type = weights_->type;
  const auto plan = [&](Linear* linear, int64_t m, int n, int k, LinearShape more = {}) {
    more.type = type, more.m = static_cast<int>(m), more.n = n, more.k = k;
    if (more.y_type != DType::kFp32) more.y_type = type;
    DEEPENCODER_RETURN(Linear::Create(linears, more, linear));
    workspace_bytes_ = std::max(workspace_bytes_, linear->workspace_bytes());
    return Status();
  };
  const LinearShape convolution = {.bias = false};
  DEEPENCODER_RETURN(plan(&patch_, tokens_, kSamWidth, kPatchElements));
  DEEPENCODER_RETURN(plan(&sam_.qkv, tokens_, 3 * kSamWidth, kSamWidth));
  DEEPENCODER_RETURN(plan(&sam_.proj, tokens_, kSamWidth, kSamWidth, {.residual = true}));
  DEEPENCODER_RETURN(plan(&sam_.lin1, tokens_, kSamMlp, kSamWidth, {.epilogue = Epilogue::kGelu}));
  DEEPENCODER_RETURN(plan(&sam_.lin2, tokens_, kSamWidth, kSamMlp, {.residual = true}));
  DEEPENCODER_RETURN(plan(&neck0_, tokens_, kNeckWidth, kSamWidth, convolution));
  DEEPENCODER_RETURN(plan(&neck2_, tokens_, kNeckWidth, kNeighbours * kNeckWidth, convolution));
  DEEPENCODER_RETURN(plan(&net2_, tokens_ / 4, kNet2Width, kNeighbours * kNeckWidth, convolution));
  DEEPENCODER_RETURN(
      plan(&net3_, output_tokens_, kNet3Width, kNeighbours * kNet2Width, convolution));
  const LinearShape clip_residual = {.y_type = kClipStreamType, .residual = true};
  DEEPENCODER_RETURN(plan(&clip_.qkv, clip_tokens_, 3 * kClipWidth, kClipWidth));
  DEEPENCODER_RETURN(plan(&clip_.out, clip_tokens_, kClipWidth, kClipWidth, clip_residual));
  DEEPENCODER_RETURN(
      plan(&clip_.fc1, clip_tokens_, kClipMlp, kClipWidth, {.epilogue = Epilogue::kQuickGelu}));
  DEEPENCODER_RETURN(plan(&clip_.fc2, clip_tokens_, kClipWidth, kClipMlp, clip_residual));
  return plan(&projector_, output_tokens_, kEmbeddingWidth, kClipWidth,
              {.y_type = DType::kFp32, .k2 = kNet3Width});
}

Status EncoderPlan::Run(const BatchTables& tables, void* arena, void* workspace,
                        cudaStream_t stream, const PassTrace& trace) const {
  const kernels::OverlapLaunches overlap(overlap_);
  const Pass pass{tables, static_cast<std::byte*>(arena), workspace, workspace_bytes_, stream,
                  trace};
  DEEPENCODER_RETURN(EmbedPatches(pass));
  for (size_t i = 0; i < weights_->sam.size(); ++i)
    DEEPENCODER_RETURN(SamBlock(pass, static_cast<int>(i)));
  DEEPENCODER_RETURN(Compress(pass));
  DEEPENCODER_RETURN(Clip(pass));
  return Reply(pass);
}

// x = patches W^T + b; the first block adds the positions as it reads x.
Status EncoderPlan::EmbedPatches(const Pass& pass) const {
  void* patches = pass.arena + arena_.offset(patches_);
  void* x = pass.arena + arena_.offset(stream_);
  DEEPENCODER_RETURN(kernels::LaunchViewPatches({.type = weights_->type,
                                                 .batch = batch_,
                                                 .side = side_,
                                                 .views = pass.tables.views,
                                                 .patches = patches},
                                                pass.stream));
  DEEPENCODER_RETURN(pass.Trace("patches", patches, Bytes(tokens_, kPatchElements)));
  return pass.Launch(
      "patch", patch_,
      {.x = patches, .weight = weights_->patch.weight, .bias = weights_->patch.bias, .y = x});
}

// x += proj(attention(norm1(x)));  x += lin2(gelu(lin1(norm2(x))))
Status EncoderPlan::SamBlock(const Pass& pass, int index) const {
  const SamBlockWeights& block = weights_->sam[index];
  const DType type = weights_->type;
  void* x = pass.arena + arena_.offset(stream_);
  void* row = pass.arena + arena_.offset(row_);
  void* wide = pass.arena + arena_.offset(wide_);

  // The first block finds the position table still to be added to the stream.
  const bool first = index == 0;
  DEEPENCODER_RETURN(
      kernels::LaunchLayerNorm({.x_type = type,
                                .y_type = type,
                                .rows = tokens_,
                                .width = kSamWidth,
                                .x = x,
                                .add = first ? weights_->sides[side_index_].sam_positions : nullptr,
                                .add_rows = first ? grid_ * grid_ : 0,
                                .sum = first ? x : nullptr,
                                .weight = block.norm1.weight,
                                .bias = block.norm1.bias,
                                .eps = kSamEps,
                                .y = row},
                               pass.stream));
  DEEPENCODER_RETURN(pass.Trace("sam.norm1", row, Bytes(tokens_, kSamWidth)));
  DEEPENCODER_RETURN(
      pass.Launch("sam.qkv", sam_.qkv,
                  {.x = row, .weight = block.qkv.weight, .bias = block.qkv.bias, .y = wide}));
  if (block.global) {
    const RelPos& tables = block.rel_pos[side_index_];
    DEEPENCODER_RETURN(kernels::LaunchGlobalAttention(
        kernels::FusedGlobalAttention(type, batch_, kSamHeads, grid_, grid_, wide, tables.h,
                                      tables.w, row),
        pass.stream));
  } else {
    const RelPos& tables = block.rel_pos[0];
    DEEPENCODER_RETURN(kernels::LaunchWindowAttention({.type = type,
                                                       .batch = batch_,
                                                       .grid = grid_,
                                                       .qkv = wide,
                                                       .qkv_bias = block.qkv.bias,
                                                       .rel_h = tables.h,
                                                       .rel_w = tables.w,
                                                       .out = row},
                                                      pass.stream));
  }
  DEEPENCODER_RETURN(pass.Trace(block.global ? "sam.global_attention" : "sam.window_attention", row,
                                Bytes(tokens_, kSamWidth)));
  DEEPENCODER_RETURN(pass.Launch(
      "sam.proj", sam_.proj,
      {.x = row, .weight = block.proj.weight, .bias = block.proj.bias, .residual = x, .y = x}));
  DEEPENCODER_RETURN(
      pass.Normalise("sam.norm2", type, type, tokens_, kSamWidth, x, block.norm2, kSamEps, row));
  DEEPENCODER_RETURN(
      pass.Launch("sam.lin1", sam_.lin1,
                  {.x = row, .weight = block.lin1.weight, .bias = block.lin1.bias, .y = wide}));
  return pass.Launch(
      "sam.lin2", sam_.lin2,
      {.x = wide, .weight = block.lin2.weight, .bias = block.lin2.bias, .residual = x, .y = x});
}

// The neck and two strided convolutions: 16 times fewer tokens.
Status EncoderPlan::Compress(const Pass& pass) const {
  const DType type = weights_->type;
  const auto at = [&](int buffer) {
    return static_cast<void*>(pass.arena + arena_.offset(buffer));
  };
  const auto gather = [&](const char* operation, int grid, int channels, int stride, int x,
                          int patches) {
    DEEPENCODER_RETURN(kernels::LaunchConvPatches({.type = type,
                                                   .batch = batch_,
                                                   .grid = grid,
                                                   .channels = channels,
                                                   .stride = stride,
                                                   .x = at(x),
                                                   .patches = at(patches)},
                                                  pass.stream));
    const int64_t outputs = int64_t{batch_} * (grid / stride) * (grid / stride);
    return pass.Trace(operation, at(patches), Bytes(outputs, kNeighbours * channels));
  };
  DEEPENCODER_RETURN(pass.Launch(
      "neck.0", neck0_, {.x = at(stream_), .weight = weights_->neck0.weight, .y = at(neck_)}));
  DEEPENCODER_RETURN(pass.Normalise("neck.1", type, type, tokens_, kNeckWidth, at(neck_),
                                    weights_->neck1, kSamEps, at(neck_)));
  DEEPENCODER_RETURN(gather("neck.2 patches", grid_, kNeckWidth, 1, neck_, neck_patches_));
  DEEPENCODER_RETURN(
      pass.Launch("neck.2", neck2_,
                  {.x = at(neck_patches_), .weight = weights_->neck2.weight, .y = at(neck_out_)}));
  DEEPENCODER_RETURN(pass.Normalise("neck.3", type, type, tokens_, kNeckWidth, at(neck_out_),
                                    weights_->neck3, kSamEps, at(neck_out_)));
  DEEPENCODER_RETURN(gather("net_2 patches", grid_, kNeckWidth, 2, neck_out_, net2_patches_));
  DEEPENCODER_RETURN(
      pass.Launch("net_2", net2_,
                  {.x = at(net2_patches_), .weight = weights_->net2.weight, .y = at(net2_out_)}));
  DEEPENCODER_RETURN(gather("net_3 patches", grid_ / 2, kNet2Width, 2, net2_out_, net3_patches_));
  return pass.Launch("net_3", net3_,
                     {.x = at(net3_patches_), .weight = weights_->net3.weight, .y = at(features_)});
}

// x = pre_norm([class; features] + positions);  per layer  x += out(attention(norm1(x)));
// x += fc2(quick_gelu(fc1(norm2(x)))). No norm at the end; the class token is dropped.
Status EncoderPlan::Clip(const Pass& pass) const {
  const DType type = weights_->type;
  const int tokens = output_grid_ * output_grid_ + 1;
  void* x = pass.arena + arena_.offset(clip_stream_);
  void* row = pass.arena + arena_.offset(clip_row_);
  void* wide = pass.arena + arena_.offset(clip_wide_);
  DEEPENCODER_RETURN(
      kernels::LaunchClipEmbed({.type = type,
                                .y_type = kClipStreamType,
                                .batch = batch_,
                                .tokens = tokens,
                                .features = pass.arena + arena_.offset(features_),
                                .class_row = weights_->class_row,
                                .positions = weights_->sides[side_index_].clip_positions,
                                .weight = weights_->pre_norm.weight,
                                .bias = weights_->pre_norm.bias,
                                .eps = kClipEps,
                                .y = x},
                               pass.stream));
  DEEPENCODER_RETURN(
      pass.Trace("clip.embed", x, clip_tokens_ * kClipWidth * SizeOf(kClipStreamType)));
  for (const ClipLayerWeights& layer : weights_->clip) {
    DEEPENCODER_RETURN(pass.Normalise("clip.norm1", kClipStreamType, type, clip_tokens_, kClipWidth,
                                      x, layer.norm1, kClipEps, row));
    DEEPENCODER_RETURN(
        pass.Launch("clip.qkv", clip_.qkv,
                    {.x = row, .weight = layer.qkv.weight, .bias = layer.qkv.bias, .y = wide}));
    DEEPENCODER_RETURN(kernels::LaunchClipAttention(
        {.type = type, .batch = batch_, .tokens = tokens, .qkv = wide, .out = row}, pass.stream));
    DEEPENCODER_RETURN(pass.Trace("clip.attention", row, Bytes(clip_tokens_, kClipWidth)));
    DEEPENCODER_RETURN(pass.Launch(
        "clip.out", clip_.out,
        {.x = row, .weight = layer.out.weight, .bias = layer.out.bias, .residual = x, .y = x}));
    DEEPENCODER_RETURN(pass.Normalise("clip.norm2", kClipStreamType, type, clip_tokens_, kClipWidth,
                                      x, layer.norm2, kClipEps, row));
    DEEPENCODER_RETURN(
        pass.Launch("clip.fc1", clip_.fc1,
                    {.x = row, .weight = layer.fc1.weight, .bias = layer.fc1.bias, .y = wide}));
    DEEPENCODER_RETURN(pass.Launch(
        "clip.fc2", clip_.fc2,
        {.x = wide, .weight = layer.fc2.weight, .bias = layer.fc2.bias, .residual = x, .y = x}));
  }
  return kernels::LaunchClipRows({.type = type,
                                  .batch = batch_,
                                  .tokens = tokens,
                                  .x = reinterpret_cast<const float*>(x),
                                  .y = pass.arena + arena_.offset(clip_features_)},
                                 pass.stream);
}

// rows = [CLIP, SAM] W^T + b, then each image's type.
Status EncoderPlan::Reply(const Pass& pass) const {
  auto* rows = reinterpret_cast<float*>(pass.arena + arena_.offset(rows_));
  DEEPENCODER_RETURN(pass.Launch("projector", projector_,
                                 {.x = pass.arena + arena_.offset(clip_features_),
                                  .x2 = pass.arena + arena_.offset(features_),
                                  .weight = weights_->projector.weight,
                                  .bias = weights_->projector.bias,
                                  .y = rows}));
  return kernels::LaunchReplyRows(
      {.batch = batch_,
       .elements = int64_t{output_grid_} * output_grid_ * kEmbeddingWidth,
       .rows = rows,
       .places = pass.tables.places,
       .packed = pass.arena + arena_.offset(reply_)},
      pass.stream);
}

}  // namespace deepencoder::cuda
