#include "server/rpc/wire_fields.h"

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <vector>

#include "deepencoder/v1/vision_encoder.pb.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

// In slices of `slice` bytes, so that fields straddle them.
grpc::ByteBuffer BufferOf(const std::string& bytes, size_t slice = SIZE_MAX) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += slices.back().size()) {
    slices.emplace_back(bytes.substr(at, slice));
  }
  return {slices.data(), slices.size()};
}

template <typename Message>
absl::Status Check(const std::string& bytes, const FieldLimits& limits = {}) {
  absl::Status first = CheckFields(BufferOf(bytes), *Message::descriptor(), limits);
  for (const size_t slice : {1, 3}) {
    const absl::Status again = CheckFields(BufferOf(bytes, slice), *Message::descriptor(), limits);
    EXPECT_EQ(again, first) << slice;
  }
  return first;
}

// That `bytes` have `fields` fields: not too many by that limit, and by one less.
template <typename Message>
void ExpectFields(const std::string& bytes, int64_t fields) {
  EXPECT_TRUE(Check<Message>(bytes, {.fields = fields}).ok()) << fields;
  const absl::Status status = Check<Message>(bytes, {.fields = fields - 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fields;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("more than " + std::to_string(fields - 1) + " fields"));
}

std::string Times(int count, const std::string& bytes) {
  std::string all;
  for (int i = 0; i < count; ++i) all += bytes;
  return all;
}

const std::string kUnknownGroup = "\xFB\x01\xFC\x01";  // field 31

TEST(WireFieldsTest, CountsTheFieldsOfPartsThatTheSchemaHas) {
  v1::EncodeImageRequest request;
  request.set_id("an id");
  request.mutable_raw()->set_width(2);
  request.mutable_raw()->set_height(1);
  request.mutable_raw()->set_rgb(std::string(6, '\x0A'));  // would be fields if it were a message
  request.mutable_reply_range()->set_handle("a handle");
  request.set_mode(v1::MODE_TINY);
  ExpectFields<v1::EncodeImageRequest>(request.SerializeAsString(), 8);
  EXPECT_TRUE(Check<v1::EncodeImageRequest>("").ok());
}

TEST(WireFieldsTest, CountsUnknownFieldsOfEachKind) {
  for (const std::string& field :
       {std::string("\xF8\x01\x96\x01"), std::string("\xF9\x01") + std::string(8, 'x'),
        std::string("\xFD\x01") + std::string(4, 'x'), std::string("\xFA\x01\x03") + "abc",
        kUnknownGroup}) {
    ExpectFields<v1::EncodeImageRequest>(Times(5, field), 5);
  }
}

TEST(WireFieldsTest, CountsWhatLiesInUnknownGroups) {
  const std::string nested = "\xFB\x01" + Times(3, kUnknownGroup) + "\x08\x01" + "\xFC\x01";
  ExpectFields<v1::EncodeImageRequest>(Times(2, nested), 10);
  // Of a part that the schema has, too.
  const std::string raw = "\x1A\x08" + Times(2, kUnknownGroup);
  ExpectFields<v1::EncodeImageRequest>(Times(4, raw), 12);
}

TEST(WireFieldsTest, AFieldOfAnotherWireTypeIsUnknown) {
  ExpectFields<v1::EncodeImageRequest>("\x0B" + kUnknownGroup + "\x0C", 2);  // id as a group
  ExpectFields<v1::EncodeImageRequest>(Times(2, "\x18\x01"), 2);             // raw as a number
}

TEST(WireFieldsTest, CountsEmptyPartsAndRepeatedOnes) {
  v1::ModelInfo info;
  for (int i = 0; i < 100; ++i) info.add_modes();
  info.add_modes()->set_name("tiny");
  ExpectFields<v1::ModelInfo>(info.SerializeAsString(), 102);
}

TEST(WireFieldsTest, DefaultsLetInWhatIsFarBeyondAnyRequestAndNoMore) {
  EXPECT_TRUE(Check<v1::EncodeImageRequest>(Times(10'000, kUnknownGroup)).ok());
  const absl::Status status =
      CheckFields(BufferOf(Times(100'000, kUnknownGroup)), *v1::EncodeImageRequest::descriptor());
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 65536 fields"));
}

TEST(WireFieldsTest, CountsNumbersOfPackedFields) {
  v1::EncodeImageResponse response;  // its shape is packed
  for (const uint32_t number : {1U, 200U, 70'000U, 4'000'000'000U}) response.add_shape(number);
  const std::string bytes = response.SerializeAsString();
  ExpectFields<v1::EncodeImageResponse>(bytes, 1);
  EXPECT_TRUE(Check<v1::EncodeImageResponse>(bytes, {.numbers = 4}).ok());
  const absl::Status status = Check<v1::EncodeImageResponse>(bytes, {.numbers = 3});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 3 numbers"));
  // Not those of a field that is bytes.
  response.clear_shape();
  response.set_data(std::string(100, '\x01'));
  EXPECT_TRUE(Check<v1::EncodeImageResponse>(response.SerializeAsString(), {.numbers = 3}).ok());
}

TEST(WireFieldsTest, WhatIsNoMessageIsLeftToTheParser) {
  for (const std::string& bytes :
       {std::string("\xFF\xFF\xFF\xFF\xFF\xFF"), std::string("\x1A\x7F\x08"), std::string("\x0C"),
        std::string("\x0A"), std::string("\x0E\x01"), std::string(10'000, '\x0B'),
        std::string(1, '\0')}) {
    EXPECT_TRUE(Check<v1::EncodeImageRequest>(bytes).ok());
    EXPECT_FALSE(v1::EncodeImageRequest().ParseFromString(bytes));
  }
  // What comes before the break counts: the parser makes it.
  ExpectFields<v1::EncodeImageRequest>(Times(5, kUnknownGroup) + "\x0C", 6);
}

}  // namespace
}  // namespace deepencoder
