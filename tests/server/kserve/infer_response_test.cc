#include "server/kserve/infer_response.h"

#include <gmock/gmock.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "tests/server/rpc/puppet_engine.h"

namespace deepencoder::kserve {
namespace {

using inference::ModelInferResponse;
using testing::ElementsAre;
using testing::HasSubstr;

InferRequest Wanted(std::vector<Output> outputs, bool batched = false, bool typed = false) {
  InferRequest request;
  request.outputs = std::move(outputs);
  request.batched = batched;
  request.typed = typed;
  request.options.image.set_id("page 1");
  return request;
}

EncodeResult ResultOf(Mode mode, DType dtype, TileGrid tiles = {}, char fill = 7) {
  EncodeJob job;
  job.mode = mode;
  job.dtype = dtype;
  return FilledResult(job, tiles, fill);
}

ModelInferResponse Write(const InferRequest& request, const std::vector<EncodeResult>& results) {
  auto buffer = WriteInferResponse("deepseek-ocr", request, results);
  ModelInferResponse response;
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  if (!buffer.ok()) return response;
  EXPECT_TRUE(grpc::SerializationTraits<ModelInferResponse>::Deserialize(&*buffer, &response).ok());
  return response;
}

std::vector<int32_t> Int32s(const std::string& raw) {
  std::vector<int32_t> values(raw.size() / sizeof(int32_t));
  std::memcpy(values.data(), raw.data(), values.size() * sizeof(int32_t));
  return values;
}

TEST(InferResponseTest, RawOutputsInTheOrderWanted) {
  const ModelInferResponse response = Write(Wanted({Output::kGeometry, Output::kEmbeddings}),
                                            {ResultOf(Mode::kGundam, DType::kBf16, {3, 2})});
  EXPECT_EQ(response.model_name(), "deepseek-ocr");
  EXPECT_EQ(response.model_version(), "1");
  EXPECT_EQ(response.id(), "page 1");
  ASSERT_EQ(response.outputs_size(), 2);
  ASSERT_EQ(response.raw_output_contents_size(), 2);
  EXPECT_EQ(response.outputs(0).name(), "geometry");
  EXPECT_EQ(response.outputs(0).datatype(), "INT32");
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(8));
  const int local = 10 * 2 * (10 * 3 + 1);
  EXPECT_THAT(Int32s(response.raw_output_contents(0)),
              ElementsAre(300, 200, 3, 2, 1024, 640, local, 272));
  EXPECT_EQ(response.outputs(1).name(), "embeddings");
  EXPECT_EQ(response.outputs(1).datatype(), "BF16");
  EXPECT_THAT(response.outputs(1).shape(), ElementsAre(local + 273, 1280));
  EXPECT_EQ(response.raw_output_contents(1), std::string(size_t{2} * (local + 273) * 1280, 7));
  EXPECT_FALSE(response.outputs(1).has_contents());
}

TEST(InferResponseTest, BatchesHaveALeadingDimension) {
  const ModelInferResponse response = Write(
      Wanted({Output::kEmbeddings, Output::kGeometry}, true),
      {ResultOf(Mode::kTiny, DType::kFp16, {}, 'a'), ResultOf(Mode::kTiny, DType::kFp16, {}, 'b')});
  EXPECT_EQ(response.outputs(0).datatype(), "FP16");
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(2, 73, 1280));
  EXPECT_THAT(response.outputs(1).shape(), ElementsAre(2, 8));
  const size_t bytes = size_t{2} * 73 * 1280;
  EXPECT_EQ(response.raw_output_contents(0), std::string(bytes, 'a') + std::string(bytes, 'b'));
  EXPECT_THAT(Int32s(response.raw_output_contents(1)),
              ElementsAre(300, 200, 1, 1, 512, 0, 0, 72, 300, 200, 1, 1, 512, 0, 0, 72));
  // A batch of one is a batch.
  EXPECT_THAT(Write(Wanted({Output::kEmbeddings}, true), {ResultOf(Mode::kTiny, DType::kFp32)})
                  .outputs(0)
                  .shape(),
              ElementsAre(1, 73, 1280));
}

TEST(InferResponseTest, TypedContentsForFp32AskedForInTypedContents) {
  EncodeResult result = ResultOf(Mode::kTiny, DType::kFp32);
  std::shared_ptr<std::byte[]> data(new std::byte[result.bytes]);
  std::vector<float> values(result.bytes / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 8;
  std::memcpy(data.get(), values.data(), result.bytes);
  result.data = data;
  const InferRequest wanted = Wanted({Output::kEmbeddings, Output::kGeometry}, false, true);
  ModelInferResponse response = Write(wanted, {result});
  EXPECT_EQ(response.raw_output_contents_size(), 0);
  EXPECT_THAT(response.outputs(0).contents().fp32_contents(), testing::ElementsAreArray(values));
  EXPECT_THAT(response.outputs(1).contents().int_contents(),
              ElementsAre(300, 200, 1, 1, 512, 0, 0, 72));
  // 16-bit floats have no field.
  response = Write(wanted, {ResultOf(Mode::kTiny, DType::kBf16)});
  EXPECT_EQ(response.raw_output_contents_size(), 2);
  EXPECT_FALSE(response.outputs(0).has_contents());
}

TEST(InferResponseTest, EmbeddingsAreSentFromWhereTheyLie) {
  std::vector<EncodeResult> results = {ResultOf(Mode::kTiny, DType::kBf16),
                                       ResultOf(Mode::kTiny, DType::kBf16)};
  const std::weak_ptr<const std::byte[]> alive = results[1].data;
  const std::vector<const void*> lie = {results[0].data.get(), results[1].data.get()};
  auto buffer = WriteInferResponse("m", Wanted({Output::kEmbeddings}, true), results);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(buffer->Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 4);
  EXPECT_EQ(slices[2].begin(), lie[0]);
  EXPECT_EQ(slices[3].begin(), lie[1]);
  results.clear();
  EXPECT_FALSE(alive.expired());  // the buffer alone keeps them
  slices.clear();
  buffer->Clear();
  EXPECT_TRUE(alive.expired());
}

TEST(InferResponseTest, ImagesOfABatchMustHaveEquallyManyRows) {
  const auto buffer = WriteInferResponse(
      "m", Wanted({Output::kEmbeddings}, true),
      {ResultOf(Mode::kGundam, DType::kBf16), ResultOf(Mode::kGundam, DType::kBf16),
       ResultOf(Mode::kGundam, DType::kBf16, {2, 1})});
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(buffer.status().message()),
              HasSubstr("image 0 has 273 and image 2 has 483"));
}

}  // namespace
}  // namespace deepencoder::kserve
