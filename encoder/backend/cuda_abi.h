/* The boundary to the CUDA backend, in plain C: the server loads libdeepencoder_cuda.so with dlopen
 * and talks to it through this table alone. So the server starts where no NVIDIA library is, and
 * the library builds with nvcc and nothing else. (Linking cublasLt into the server would also break
 * civetweb, whose threads have too small a stack for cublasLt's static thread-local storage.)
 *
 * Every function that can fail returns a DeCode and fills `error` (never null). No pointer handed
 * in is kept past the call unless said. Types and shapes are checked; a null or foreign handle is
 * the caller's fault. */
#ifndef DEEPENCODER_CUDA_ABI_H
#define DEEPENCODER_CUDA_ABI_H

#include <stddef.h> /* NOLINT(modernize-deprecated-headers): C */
#include <stdint.h> /* NOLINT(modernize-deprecated-headers): C */

#ifdef __cplusplus
extern "C" {
#endif

#define DE_CUDA_ABI_VERSION 2

typedef enum DeCode {
  DE_OK = 0,
  DE_INVALID_ARGUMENT = 1,
  DE_UNSUPPORTED = 2,
  DE_RESOURCE_EXHAUSTED = 3, /* device or pinned memory */
  DE_DEVICE = 4 /* a CUDA or cuBLAS call failed: the slot, perhaps the process, must be made anew */
} DeCode;

typedef struct DeError {
  char message[1024]; /* ended by 0 */
} DeError;

enum { DE_BF16 = 0, DE_FP16 = 1, DE_FP32 = 2 }; /* as deepencoder::DType */

/* A checkpoint's tensor in host memory, row-major; `data` may be unaligned. */
typedef struct DeTensor {
  const char* name;
  int32_t dtype;
  int32_t rank;
  int64_t shape[4];
  const void* data;
} DeTensor;

typedef struct DeBackendOptions {
  int32_t device;  /* ordinal */
  int32_t compute; /* DE_BF16 or DE_FP16 */
  int32_t sam_depth, clip_layers;
  const int32_t* global_blocks;
  int32_t global_block_count;
  const int32_t* sides; /* view sides, pixels */
  int32_t side_count;
  const int32_t* buckets; /* batch sizes, ascending */
  int32_t bucket_count;
  int32_t graphs; /* capture one for every side and bucket when a slot is made */
  /* Called for each tensor when its bytes are no longer needed; may be null. */
  void (*release)(void* context, const char* name);
  void* release_context;
} DeBackendOptions;

/* The image resampled once and cut or pasted: see encoder/image/view_plan.h. */
typedef struct DeResizeJob {
  int32_t width, height, side, columns, rows, left, top;
} DeResizeJob;

/* One view to encode: rows of line y go to rows + y * line_stride bytes (host memory, written
 * before the call returns), side/64 rows of 1280 elements of `dtype` a line. */
typedef struct DeEncodeItem {
  const struct DeViews* views;
  int32_t view;
  int32_t dtype;
  void* rows;
  uint64_t line_stride;
} DeEncodeItem;

typedef struct DeEncodeStats {
  int32_t bucket; /* batch size that ran */
  int32_t graph;  /* 1: replayed a captured graph */
  double compute_seconds;
} DeEncodeStats;

/* One operation of an encode: its output in host memory, images one after another, for this call only. */
typedef struct DeTraceStep {
  const char* operation; /* "sam.qkv" */
  const char* algorithm; /* of a dense layer, else "" */
  const void* output;
  uint64_t bytes;
} DeTraceStep;
typedef void (*DeTrace)(void* context, const DeTraceStep* step);

typedef struct DeMemoryUse {
  /* "weights", "workspace", "graphs", "views" (images too, and what is kept for the next ones), "code" (of the process:
   * every backend of a device says the same) */
  char kind[16];
  uint64_t current, peak; /* bytes */
} DeMemoryUse;

typedef struct DeDeviceInfo {
  char name[256];
  int32_t capability_major, capability_minor;
  uint64_t memory_total; /* bytes */
} DeDeviceInfo;

typedef struct DeBackend DeBackend;
typedef struct DeSlot DeSlot;
typedef struct DeViews DeViews;

typedef struct DeCudaApi {
  int32_t version; /* DE_CUDA_ABI_VERSION: the caller must refuse another */

  DeCode (*device_count)(int32_t* count, DeError* error);
  DeCode (*device_info)(int32_t device, DeDeviceInfo* info, DeError* error);

  /* Loads the weights onto the device. Blocks; seconds. */
  DeCode (*create)(const DeBackendOptions* options, const DeTensor* tensors, int32_t tensor_count,
                   DeBackend** backend, DeError* error);
  void (*destroy)(DeBackend* backend); /* after its slots and views */

  /* rgb: [height][width][3], upright. Blocks until the views are on the device. Thread-safe. */
  DeCode (*make_views)(DeBackend* backend, const uint8_t* rgb, int32_t width, int32_t height,
                       const DeResizeJob* jobs, int32_t job_count, DeViews** views, DeError* error);
  int32_t (*view_count)(const DeViews* views);
  int32_t (*view_side)(const DeViews* views, int32_t view);
  uint64_t (*view_bytes)(const DeViews* views);
  /* Copies a view to host memory, [side][side][3]; for tests and for looking at what is encoded. */
  DeCode (*read_view)(const DeViews* views, int32_t view, uint8_t* rgb, DeError* error);
  void (*destroy_views)(DeViews* views); /* any thread; not while an encode reads them */

  DeCode (*create_slot)(DeBackend* backend, DeSlot** slot, DeError* error);
  void (*destroy_slot)(DeSlot* slot);
  /* One call at a time a slot. Blocks until the rows are written. */
  DeCode (*encode)(DeSlot* slot, int32_t side, const DeEncodeItem* items, int32_t count,
                   DeEncodeStats* stats, DeError* error);
  /* Fills the slot's working memory with NaN bits: what an encode does not write, a test then sees.
   */
  DeCode (*poison)(DeSlot* slot, DeError* error);
  /* From now on every encode of this slot runs without its graph, waits after each operation and hands its
   * output to `trace`: slow, for finding the operation at which two runs part. Null ends it. */
  DeCode (*trace)(DeSlot* slot, DeTrace trace, void* context, DeError* error);

  /* Writes at most `capacity` entries, returns how many there are. Thread-safe, never waits for the
   * device. */
  int32_t (*memory)(const DeBackend* backend, DeMemoryUse* uses, int32_t capacity);
} DeCudaApi;

/* The table. */
const DeCudaApi* deepencoder_cuda_api(void);
#define DE_CUDA_ENTRY_POINT "deepencoder_cuda_api"

/* What came after this version of the table is an exported symbol of its own, so that either side may be the older
 * one: a program does without what a library does not have.
 *
 * The device's address on the PCI bus, "0000:3b:00.0", ended by 0. */
DeCode deepencoder_cuda_pci_bus_id(int32_t device, char* text, int32_t size, DeError* error);
#define DE_CUDA_PCI_BUS_ID "deepencoder_cuda_pci_bus_id"

/* Bytes of the device's memory that nobody holds, in this process or another. */
DeCode deepencoder_cuda_free_memory(int32_t device, uint64_t* bytes, DeError* error);
#define DE_CUDA_FREE_MEMORY "deepencoder_cuda_free_memory"

/* As DeCudaApi::encode, and calls `computed` (not null) on this thread, once, when the device is done and what is
 * left is to bring the rows to where they go; not if it fails before. From then on one more call may begin beside
 * this one; a third not before this one has returned. */
DeCode deepencoder_cuda_encode_ahead(DeSlot* slot, int32_t side, const DeEncodeItem* items,
                                     int32_t count, DeEncodeStats* stats,
                                     void (*computed)(void* context), void* context,
                                     DeError* error);
#define DE_CUDA_ENCODE_AHEAD "deepencoder_cuda_encode_ahead"

/* Version and source revision that the library was built from, "0.1.0 (1a2b3c4d5e6f)". */
const char* deepencoder_cuda_build(void);
#define DE_CUDA_BUILD "deepencoder_cuda_build"

#ifdef __cplusplus
}
#endif
#endif
