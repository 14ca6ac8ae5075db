// One forward pass of the DeepEncoder for a view side and a batch size: every product planned, every buffer
// placed. Reads in the order of the model: patches, SAM blocks, neck, CLIP, projector, reply.
//
//   N = (side/16)^2 tokens, c = side/64, T = c^2 + 1, B = batch; activations are [B][tokens][channels]
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "encoder/cuda/arena.h"
#include "encoder/cuda/weights.h"
#include "kernels/linear.h"
#include "kernels/reply_rows.h"

namespace deepencoder::cuda {

// What changes from batch to batch. Both arrays lie in device memory at fixed addresses, so that a captured
// graph finds new content there.
struct BatchTables {
  const uint8_t* const* views = nullptr;  // [batch] views, [side][side][3] uint8 each
  const kernels::ReplyPlace* places =
      nullptr;  // [batch] where in the reply buffer each image's rows go
};

// Hears of every operation of a pass when it is enqueued: its name ("sam.qkv"), the algorithm if it is a dense
// layer, and its output, `bytes` of device memory, images one after another. An error ends the pass.
using PassTrace = std::function<Status(const char* operation, const std::string& algorithm,
                                       const void* output, size_t bytes)>;

class EncoderPlan {
 public:
  // `weights` must outlive the plan. Measures products whose shape `linears` has not seen yet.
  static Status Create(const Weights& weights, int side, int batch, kernels::LinearContext& linears,
                       EncoderPlan* plan);

  int side() const { return side_; }
  int batch() const { return batch_; }
  size_t arena_bytes() const { return arena_.bytes(); }
  size_t workspace_bytes() const { return workspace_bytes_; }
  // Of one image in the reply buffer, fp32: offsets must be multiples of 16 and leave that much room.
  size_t reply_bytes_per_image() const;
  // Where in the arena the reply buffer lies: batch * reply_bytes_per_image() bytes.
  size_t reply_offset() const { return arena_.offset(reply_); }

  // Enqueues the pass on `stream`; allocates nothing and can be captured. `arena` and `workspace` are
  // device memory of at least arena_bytes() and workspace_bytes(), used by this pass alone until it is done.
  // `trace` may be empty.
  Status Run(const BatchTables& tables, void* arena, void* workspace, cudaStream_t stream,
             const PassTrace& trace = {}) const;

 private:
  struct SamLinears {
    kernels::Linear qkv, proj, lin1, lin2;
  };
  struct ClipLinears {
    kernels::Linear qkv, out, fc1, fc2;
  };
  struct Pass;  // the addresses of one Run

  void PlaceBuffers();
  Status PlanLinears(kernels::LinearContext& linears);

  size_t Bytes(int64_t rows, int columns) const;  // of activations in the model's type

  Status EmbedPatches(const Pass& pass) const;
  Status SamBlock(const Pass& pass, int index) const;
  Status Compress(const Pass& pass) const;
  Status Clip(const Pass& pass) const;
  Status Reply(const Pass& pass) const;

  const Weights* weights_ = nullptr;
  bool overlap_ = false;  // a kernel may begin before the one in front of it has ended
  int side_index_ = 0;
  int side_ = 0, batch_ = 0;
  int grid_ = 0, output_grid_ = 0;
  int64_t tokens_ = 0, output_tokens_ = 0, clip_tokens_ = 0;  // of the whole batch

  // Every block of a kind has the same shapes, so one set of plans serves them all.
  kernels::Linear patch_, neck0_, neck2_, net2_, net3_, projector_;
  SamLinears sam_;
  ClipLinears clip_;
  size_t workspace_bytes_ = 0;

  ArenaPlan arena_;
  int patches_ = 0, stream_ = 0, row_ = 0, wide_ = 0;                  // SAM
  int neck_ = 0, neck_patches_ = 0, neck_out_ = 0, net2_patches_ = 0;  // compressor
  int net2_out_ = 0, net3_patches_ = 0, features_ = 0;
  int clip_stream_ = 0, clip_row_ = 0, clip_wide_ = 0, clip_features_ = 0;  // CLIP
  int rows_ = 0, reply_ = 0;
};

}  // namespace deepencoder::cuda
