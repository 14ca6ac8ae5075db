// What the server and a decode worker say to each other: a packet each way for an image, over a pair of
// sockets. The file and the pixels lie in memory that both have mapped. Both ends are the same program,
// so structures go as they are; but nothing that a worker says is believed unchecked, since a hostile
// file may have taken it over.
#pragma once

#include <cstddef>
#include <cstdint>

#include "encoder/image/decode.h"

namespace deepencoder {

// The first argument of a worker. After it: the server's process id, the bytes of the two regions.
inline constexpr char kDecodeWorkerFlag[] = "--decode-worker";

// Descriptors of a worker, besides standard error.
inline constexpr int kWorkerSocket = 3, kWorkerFile = 4, kWorkerPixels = 5;

// Sent once, when the worker is ready, or cannot be.
struct WorkerHello {
  int32_t error;           // errno of the step that failed; 0: confined
  char step[32];           // that step, for the log
  uint64_t address_space;  // bytes, mapped already
};

struct DecodeCall {
  uint64_t file_bytes;   // at the start of the file's region
  uint64_t pixel_bytes;  // of the picture, as the file's header says
  DecodeOptions options;
};

struct DecodeAnswer {
  int32_t code;  // absl::StatusCode
  int32_t width, height;
  uint32_t message_bytes;
  char message[256];
};

}  // namespace deepencoder
