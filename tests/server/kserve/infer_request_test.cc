#include "server/kserve/infer_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/server/kserve/infer_messages.h"

namespace deepencoder::kserve {
namespace {

using inference::ModelInferRequest;
using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<InferRequest> Read(const ModelInferRequest& request) {
  return ReadInferRequest(std::make_shared<const ModelInferRequest>(request), NoRegions, 1 << 20);
}

std::vector<std::string> FilesOf(const InferRequest& request) {
  std::vector<std::string> files;
  for (const SharedBytes& file : request.files) {
    files.emplace_back(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  }
  return files;
}

TEST(InferRequestTest, RawAndTypedContentsGiveTheSameFiles) {
  for (const bool typed : {false, true}) {
    const auto one = Read(typed ? TypedRequest({1}, {"file"}) : RawRequest({1}, {"file"}));
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_THAT(FilesOf(*one), ElementsAre("file"));
    EXPECT_FALSE(one->batched);
    EXPECT_EQ(one->typed, typed);
    EXPECT_THAT(one->outputs, ElementsAre(Output::kEmbeddings, Output::kGeometry));
    EXPECT_EQ(one->options.timeout, absl::InfiniteDuration());

    const auto batch = Read(typed ? TypedRequest({3, 1}, {"one", "", "three"})
                                  : RawRequest({3, 1}, {"one", "", "three"}));
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_THAT(FilesOf(*batch), ElementsAre("one", "", "three"));
    EXPECT_TRUE(batch->batched);
  }
}

TEST(InferRequestTest, FilesKeepTheMessageAlive) {
  auto message = std::make_shared<const ModelInferRequest>(RawRequest({1}, {"file"}));
  const std::weak_ptr<const ModelInferRequest> alive = message;
  auto request = ReadInferRequest(message, NoRegions, 1 << 20);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(static_cast<const void*>(request->files[0].bytes.data()),
            message->raw_input_contents(0).data() + 4);
  message.reset();
  EXPECT_FALSE(alive.expired());
  request->files.clear();
  EXPECT_TRUE(alive.expired());
}

// What tritonclient 2.73.0 puts on the wire for infer("deepseek-ocr", [image of shape [2, 1]],
// "1", outputs=[geometry, embeddings], request_id="page 1", timeout=5000000,
// parameters={"mode": "tiny"}).
TEST(InferRequestTest, ReadsWhatTritonclientWrites) {
  const std::string bytes(
      "\012\014deepseek-ocr\022\0011\032\006page 1"
      "\042\016\012\004mode\022\006\032\004tiny\042\020\012\007timeout\022\005\020\300\226\261\002"
      "*\022\012\005image\022\005BYTES\032\002\002\0012\012\012\010geometry2\014\012\012embeddings"
      ":\020\003\000\000\000one\005\000\000\000three",
      123);
  ModelInferRequest message;
  ASSERT_TRUE(message.ParseFromString(bytes));
  EXPECT_EQ(message.model_name(), "deepseek-ocr");
  EXPECT_EQ(message.model_version(), "1");
  const auto request = Read(message);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(FilesOf(*request), ElementsAre("one", "three"));
  EXPECT_THAT(request->outputs, ElementsAre(Output::kGeometry, Output::kEmbeddings));
  EXPECT_EQ(request->options.image.id(), "page 1");
  EXPECT_EQ(request->options.image.mode(), v1::MODE_TINY);
  EXPECT_EQ(request->options.timeout, absl::Seconds(5));
}

TEST(InferRequestTest, ReadsEveryParameter) {
  ModelInferRequest message = RawRequest({1}, {"file"});
  Set(message, "mode", "base");
  Set(message, "max_tiles", 12);
  Set(message, "dtype", "FP16");
  Set(message, "alpha", "white");
  Set(message, "gray16", "saturate");
  Set(message, "timeout", 250);
  Set(message, "triton_enable_empty_final_response", "ignored");
  auto request = Read(message);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->options.image.mode(), v1::MODE_BASE);
  EXPECT_EQ(request->options.image.max_tiles(), 12);
  EXPECT_EQ(request->options.image.dtype(), v1::DTYPE_FP16);
  EXPECT_EQ(request->options.image.alpha(), v1::ALPHA_POLICY_WHITE);
  EXPECT_EQ(request->options.image.gray16(), v1::GRAY16_POLICY_SATURATE);
  EXPECT_EQ(request->options.timeout, absl::Microseconds(250));

  Set(message, "dtype", "fp32");
  Set(message, "alpha", "drop");
  Set(message, "gray16", "high_byte");
  Set(message, "timeout", 0);
  (*message.mutable_parameters())["max_tiles"].set_uint64_param(4);
  request = Read(message);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->options.image.max_tiles(), 4);
  EXPECT_EQ(request->options.image.dtype(), v1::DTYPE_FP32);
  EXPECT_EQ(request->options.image.alpha(), v1::ALPHA_POLICY_DROP);
  EXPECT_EQ(request->options.image.gray16(), v1::GRAY16_POLICY_HIGH_BYTE);
  EXPECT_EQ(request->options.timeout, absl::InfiniteDuration());
}

struct Case {
  std::function<void(ModelInferRequest&)> change;
  std::string text;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

// `base` is understood; each change to it is refused by a text that holds Case::text.
void ExpectRefused(const ModelInferRequest& base, const std::vector<Case>& cases) {
  ASSERT_TRUE(Read(base).ok());
  for (const Case& bad : cases) {
    ModelInferRequest message = base;
    bad.change(message);
    const auto request = Read(message);
    ASSERT_FALSE(request.ok()) << bad.text;
    EXPECT_EQ(request.status().code(), bad.code) << request.status();
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(bad.text));
  }
}

TEST(InferRequestTest, RefusesTensorsThatTheModelDoesNotHave) {
  ExpectRefused(
      RawRequest({1}, {"file"}),
      {{[](auto& m) { m.clear_inputs(); }, "has 0 inputs: expected one, image"},
       {[](auto& m) { m.add_inputs(); }, "has 2 inputs"},
       {[](auto& m) { m.mutable_inputs(0)->set_name("pixels"); }, "no input 'pixels'"},
       {[](auto& m) { m.mutable_inputs(0)->set_datatype("UINT8"); }, "'UINT8': expected BYTES"},
       {[](auto& m) { m.add_outputs()->set_name("logits"); }, "no output 'logits'"},
       {[](auto& m) {
          m.add_outputs()->set_name("geometry");
          m.add_outputs()->set_name("geometry");
        },
        "geometry is requested twice"},
       {[](auto& m) { SetRegion(*m.mutable_inputs(0)->mutable_parameters(), "region", 10); },
        "shared memory is off", absl::StatusCode::kUnimplemented},
       {[](auto& m) {
          m.add_outputs()->set_name("embeddings");
          (*m.mutable_outputs(0)->mutable_parameters())["classification"].set_int64_param(3);
        },
        "unknown parameter 'classification'"}});
}

TEST(InferRequestTest, RefusesShapesAndContentsThatDoNotFit) {
  const auto shape = [](std::initializer_list<int64_t> sizes) {
    return [sizes = std::vector<int64_t>(sizes)](ModelInferRequest& message) {
      message.mutable_inputs(0)->mutable_shape()->Assign(sizes.begin(), sizes.end());
    };
  };
  const auto raw = [](std::string bytes) {
    return [bytes = std::move(bytes)](ModelInferRequest& message) {
      message.set_raw_input_contents(0, bytes);
    };
  };
  ExpectRefused(
      RawRequest({1}, {"file"}),
      {{shape({}), "shape []: expected [1]"},
       {shape({2}), "shape [2]: expected [1]"},
       {shape({0, 1}), "[0, 1]"},
       {shape({-1, 1}), "[-1, 1]"},
       {shape({33, 1}), "N = 1 to 32"},
       {shape({1, 2}), "[1, 2]"},
       {shape({1, 1, 1}), "[1, 1, 1]"},
       {shape({2, 1}), "has 1 elements and 0 bytes more; its shape says 2"},
       {raw(""), "has 0 elements and 0 bytes more"},
       {raw("abc"), "has 0 elements and 3 bytes more"},
       {raw("file"), "element 0 says it has 1701603686 bytes, but 0 follow"},
       {raw(RawElement("file").substr(0, 7)), "says it has 4 bytes, but 3 follow"},
       {raw(RawElement("file") + "x"), "has 1 elements and 1 bytes more"},
       {[](auto& m) { m.add_raw_input_contents(); }, "has 2 raw_input_contents and no contents"},
       {[](auto& m) { m.mutable_inputs(0)->mutable_contents(); },
        "has 1 raw_input_contents and contents"},
       {[](auto& m) { m.clear_raw_input_contents(); }, "has 0 elements in contents.bytes_contents"},
       {[](auto& m) {
          m.clear_raw_input_contents();
          m.mutable_inputs(0)->mutable_contents()->add_uint_contents(7);
        },
        "has 0 elements in contents.bytes_contents"}});
  ExpectRefused(TypedRequest({2, 1}, {"one", "two"}),
                {{shape({3, 1}), "has 2 elements in contents.bytes_contents"}});
}

TEST(InferRequestTest, RefusesParametersThatItDoesNotKnow) {
  const auto text = [](const char* name, const char* value) {
    return [=](ModelInferRequest& message) { Set(message, name, std::string(value)); };
  };
  const auto number = [](const char* name, int64_t value) {
    return [=](ModelInferRequest& message) { Set(message, name, value); };
  };
  ExpectRefused(RawRequest({1}, {"file"}),
                {{text("max_tile", "6"), "unknown parameter 'max_tile'; known: mode, max_tiles"},
                 {number("sequence_id", 1), "unknown parameter 'sequence_id'"},
                 {text("mode", "huge"), "mode is 'huge': expected one of tiny, small, base"},
                 {number("mode", 1), "mode is no string_param"},
                 {number("max_tiles", 3), "max_tiles is 3: expected an int64_param of 4 to 32"},
                 {number("max_tiles", -1), "max_tiles is -1"},
                 {number("max_tiles", int64_t{1} << 32 | 6), "max_tiles is 4294967302"},
                 {text("max_tiles", "6"), "max_tiles is no int64_param"},
                 {[](auto& m) { (*m.mutable_parameters())["max_tiles"].set_uint64_param(~0ULL); },
                  "max_tiles is no int64_param"},
                 {text("dtype", "INT8"), "dtype is 'INT8': expected one of BF16, FP16, FP32"},
                 {number("dtype", 1), "dtype is no string_param"},
                 {text("alpha", "black"), "alpha is 'black': expected one of drop, white"},
                 {text("gray16", "low"), "gray16 is 'low': expected one of high_byte, saturate"},
                 {number("timeout", -1), "timeout is -1"},
                 {[](auto& m) { (*m.mutable_parameters())["mode"]; }, "mode is no string_param"}});
}

}  // namespace
}  // namespace deepencoder::kserve
