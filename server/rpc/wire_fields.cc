#include "server/rpc/wire_fields.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The parser goes no deeper than 100.
constexpr int kMaxDepth = 128;

// Varints of which the wire may have fewer bytes than the memory.
bool Grows(const FieldDescriptor& field) {
  const auto type = static_cast<WireFormatLite::FieldType>(field.type());
  return field.is_repeated() && type != WireFormatLite::TYPE_BOOL &&
         WireFormatLite::WireTypeForFieldType(type) == WireFormatLite::WIRETYPE_VARINT;
}

class FieldCounter {
 public:
  FieldCounter(CodedInputStream* input, const FieldLimits& limits)
      : input_(input), limits_(limits) {}

  // Up to the end of the message, or to the tag `end` of the group that this is in. `type`: null of a group,
  // whose parts nobody knows. False: the parser cannot go on, or must not.
  bool Count(const Descriptor* type, uint32_t end = 0, int depth = 0) {
    if (depth > kMaxDepth) return false;
    while (const uint32_t tag = input_->ReadTag()) {
      if (tag == end) return true;
      if (++fields_ > limits_.fields || !Skip(tag, type, depth)) return false;
    }
    return end == 0 && input_->ConsumedEntireMessage();
  }

  absl::Status Verdict() const {
    if (fields_ > limits_.fields) return Excess(limits_.fields, "fields");
    if (numbers_ > limits_.numbers) return Excess(limits_.numbers, "numbers in packed fields");
    return absl::OkStatus();
  }

 private:
  static absl::Status Excess(int64_t limit, const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message has more than ", limit, " ", what, ", which is the limit"));
  }

  bool Skip(uint32_t tag, const Descriptor* type, int depth) {
    constexpr int kFixed64Bytes = 8, kFixed32Bytes = 4;
    const int number = WireFormatLite::GetTagFieldNumber(tag);
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT: {
        uint64_t value;
        return input_->ReadVarint64(&value);
      }
      case WireFormatLite::WIRETYPE_FIXED64:
        return input_->Skip(kFixed64Bytes);
      case WireFormatLite::WIRETYPE_FIXED32:
        return input_->Skip(kFixed32Bytes);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return SkipBytes(type == nullptr ? nullptr : type->FindFieldByNumber(number), depth);
      case WireFormatLite::WIRETYPE_START_GROUP:
        return Count(nullptr, WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_END_GROUP),
                     depth + 1);
      default:  // the end of a group that did not begin, or nothing at all
        return false;
    }
  }

  // `field`: null if unknown.
  bool SkipBytes(const FieldDescriptor* field, int depth) {
    int size = 0;
    if (!input_->ReadVarintSizeAsInt(&size)) return false;
    const bool is_message = field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE;
    const bool grows = field != nullptr && Grows(*field);
    if (!is_message && !grows) return input_->Skip(size);
    const CodedInputStream::Limit outer = input_->PushLimit(size);
    const bool good = is_message ? Count(field->message_type(), 0, depth + 1) : CountNumbers();
    input_->PopLimit(outer);
    return good;
  }

  // Up to the limit that was pushed: each varint has one byte without its top bit, the last.
  bool CountNumbers() {
    constexpr uint8_t kMore = 0x80;
    const void* data = nullptr;
    int size = 0;
    while (input_->GetDirectBufferPointer(&data, &size)) {
      const auto* bytes = static_cast<const uint8_t*>(data);
      numbers_ += std::count_if(bytes, bytes + size, [](uint8_t byte) { return byte < kMore; });
      if (numbers_ > limits_.numbers || !input_->Skip(size)) return false;
    }
    return true;
  }

  CodedInputStream* const input_;
  const FieldLimits limits_;
  int64_t fields_ = 0;
  int64_t numbers_ = 0;
};

}  // namespace

absl::Status CheckFields(const grpc::ByteBuffer& message, const Descriptor& type,
                         const FieldLimits& limits) {
  grpc::ByteBuffer reader = message;  // shares the slices; reading consumes the copy
  grpc::ProtoBufferReader slices(&reader);
  CodedInputStream input(&slices);
  FieldCounter counter(&input, limits);
  counter.Count(&type);
  return counter.Verdict();
}

}  // namespace deepencoder
