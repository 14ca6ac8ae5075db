// What a message is made of, counted on the wire before it is parsed. The parser makes an object of every
// field, known or not: an empty group takes 2 bytes of a message and some 50 of memory, an empty input of
// ModelInfer 2 and over 100, so the length of a message alone bounds nothing.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "absl/status/status.h"

namespace deepencoder {

// Of a whole message, those of its parts included.
struct FieldLimits {
  int64_t fields = int64_t{1} << 16;  // a request that can be served has some hundred
  // In packed fields, where a number takes a byte on the wire and up to 8 in memory.
  int64_t numbers = int64_t{1} << 22;
};

// Errors: INVALID_ARGUMENT, with the limit, if the bytes have more as a message of `type`. Where they are no
// message the count ends without an error: the parser ends there, too, and says so.
absl::Status CheckFields(const grpc::ByteBuffer& message, const google::protobuf::Descriptor& type,
                         const FieldLimits& limits = {});

}  // namespace deepencoder
