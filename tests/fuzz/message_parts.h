// That a message which CheckFields lets in has no more in it than the limits say.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "server/rpc/wire_fields.h"
#include "tests/fuzz/fuzz_target.h"

namespace deepencoder::fuzz {

// In two slices, so that fields straddle them.
inline grpc::ByteBuffer BufferOf(const uint8_t* data, size_t size, uint64_t choice) {
  const size_t cut = size == 0 ? 0 : choice % size;
  const grpc::Slice slices[] = {grpc::Slice(data, cut), grpc::Slice(data + cut, size - cut)};
  return {slices, 2};
}

// Each has a field of its own on the wire, but the numbers of packed fields.
struct Parts {
  int64_t objects = 0;  // elements of repeated fields, unknown fields
  int64_t numbers = 0;  // varints, as elements
};

inline void Count(const google::protobuf::UnknownFieldSet& fields, Parts& parts) {
  for (int i = 0; i < fields.field_count(); ++i) {
    ++parts.objects;
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.type() == google::protobuf::UnknownField::TYPE_GROUP) Count(field.group(), parts);
  }
}

inline void Count(const google::protobuf::Message& message, Parts& parts) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  Count(reflection.GetUnknownFields(message), parts);
  std::vector<const Field*> fields;
  reflection.ListFields(message, &fields);
  for (const Field* field : fields) {
    const bool is_message = field->cpp_type() == Field::CPPTYPE_MESSAGE;
    if (!field->is_repeated()) {
      if (is_message) Count(reflection.GetMessage(message, field), parts);
      continue;
    }
    const int size = reflection.FieldSize(message, field);
    if (is_message || field->cpp_type() == Field::CPPTYPE_STRING) {
      parts.objects += size;
    } else if (field->cpp_type() != Field::CPPTYPE_BOOL &&
               field->cpp_type() != Field::CPPTYPE_FLOAT &&
               field->cpp_type() != Field::CPPTYPE_DOUBLE) {
      parts.numbers += size;
    }
    for (int i = 0; is_message && i < size; ++i) {
      Count(reflection.GetRepeatedMessage(message, field, i), parts);
    }
  }
}

// `parsed`: from `bytes`.
inline void RequireFewParts(const grpc::ByteBuffer& bytes, const google::protobuf::Message& parsed,
                            uint64_t choice) {
  const FieldLimits limits = {.fields = static_cast<int64_t>(choice % 32),
                              .numbers = static_cast<int64_t>(choice / 32 % 32)};
  if (!CheckFields(bytes, *parsed.GetDescriptor(), limits).ok()) return;
  Parts parts;
  Count(parsed, parts);
  Require(parts.objects <= limits.fields, "what is made of a message was counted");
  Require(parts.numbers <= limits.fields + limits.numbers, "numbers were counted");
}

}  // namespace deepencoder::fuzz
