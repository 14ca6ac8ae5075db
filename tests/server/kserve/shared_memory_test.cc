// Tensors of KServe's protocol in system shared memory, over a real socket.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "server/kserve/describe.h"
#include "server/kserve/inference_service.h"
#include "tests/server/kserve/infer_messages.h"
#include "tests/server/rpc/rpc_fixture.h"
#include "tests/server/shared_memory/client_object.h"

namespace deepencoder::kserve {
namespace {

using inference::GRPCInferenceService;
using inference::ModelInferRequest;
using inference::ModelInferResponse;
using testing::HasSubstr;

constexpr size_t kRowBytes = size_t{73} * 1280 * 2;  // of an image in mode tiny
constexpr size_t kObject = 4 << 20;
constexpr size_t kRowsAt = 1 << 20;

class KserveSharedMemoryTest : public testing::Test {
 protected:
  KserveSharedMemoryTest() {
    auto started = GrpcServer::Start({.listen = {"127.0.0.1:0"}}, {&service_});
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = GRPCInferenceService::NewStub(grpc::CreateCustomChannel(
        server_->addresses().front(), grpc::InsecureChannelCredentials(), arguments));
    rpc_.Serve();
    rpc_.engine->Play([](const EncodeJob& job) {
      const auto& bytes = std::get<EncodedFile>(job.image).file.bytes;
      return FilledResult(job, {}, std::to_integer<char>(bytes.back()));
    });
  }
  ~KserveSharedMemoryTest() override { server_->Shutdown(absl::InfinitePast()); }

  grpc::Status Register(const std::string& name, const std::string& key, uint64_t size,
                        uint64_t offset = 0) {
    grpc::ClientContext context;
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_key(key);
    request.set_offset(offset);
    request.set_byte_size(size);
    inference::SystemSharedMemoryRegisterResponse response;
    return stub_->SystemSharedMemoryRegister(&context, request, &response);
  }
  grpc::Status Unregister(const std::string& name) {
    grpc::ClientContext context;
    inference::SystemSharedMemoryUnregisterRequest request;
    request.set_name(name);
    inference::SystemSharedMemoryUnregisterResponse response;
    return stub_->SystemSharedMemoryUnregister(&context, request, &response);
  }
  grpc::Status Status(const std::string& name,
                      inference::SystemSharedMemoryStatusResponse* response) {
    grpc::ClientContext context;
    inference::SystemSharedMemoryStatusRequest request;
    request.set_name(name);
    return stub_->SystemSharedMemoryStatus(&context, request, response);
  }
  grpc::Status Infer(const ModelInferRequest& request) {
    grpc::ClientContext context;
    response_.Clear();
    return stub_->ModelInfer(&context, request, &response_);
  }

  // The tensor in the region "in", the embeddings to the region "out".
  static ModelInferRequest Request(std::initializer_list<int64_t> shape, size_t bytes,
                                   size_t row_bytes) {
    ModelInferRequest request = EmptyRequest(shape);
    Set(request, "mode", "tiny");
    SetRegion(*request.mutable_inputs(0)->mutable_parameters(), "in", static_cast<int64_t>(bytes));
    auto& output = *request.add_outputs();
    output.set_name("embeddings");
    SetRegion(*output.mutable_parameters(), "out", static_cast<int64_t>(row_bytes), 64);
    return request;
  }
  void RegisterBoth(const ClientObject& object) {
    ASSERT_TRUE(Register("in", object.key(), kRowsAt).ok());
    ASSERT_TRUE(Register("out", object.key(), kObject - kRowsAt, kRowsAt).ok());
  }

  RpcServer rpc_{1, "127.0.0.1:0", nullptr, true};
  InferenceService service_{rpc_.Context(1, true), [this] { return rpc_.service.Admit(); }};
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<GRPCInferenceService::Stub> stub_;
  ModelInferResponse response_;
};

TEST_F(KserveSharedMemoryTest, TensorsGoThroughIt) {
  const ClientObject object(kObject, false);
  RegisterBoth(object);
  const std::string raw = RawElement("file A");
  object.Put(0, raw);
  ModelInferRequest request = Request({1}, raw.size(), 2 * kRowBytes);
  request.add_outputs()->set_name("geometry");
  ASSERT_TRUE(Infer(request).ok());
  ASSERT_EQ(response_.outputs_size(), 2);
  const auto& output = response_.outputs(0);
  EXPECT_EQ(output.name(), "embeddings");
  EXPECT_EQ(output.shape(0), 73);
  EXPECT_EQ(output.parameters().at("shared_memory_region").string_param(), "out");
  EXPECT_EQ(output.parameters().at("shared_memory_byte_size").int64_param(), kRowBytes);
  EXPECT_EQ(output.parameters().at("shared_memory_offset").int64_param(), 64);
  EXPECT_EQ(object.Get(kRowsAt + 64, kRowBytes), std::string(kRowBytes, 'A'));
  EXPECT_EQ(object.Get(kRowsAt + 64 + kRowBytes, 1), std::string(1, '\0'));
  // Each output keeps its place among the raw contents.
  ASSERT_EQ(response_.raw_output_contents_size(), 2);
  EXPECT_TRUE(response_.raw_output_contents(0).empty());
  EXPECT_EQ(response_.raw_output_contents(1).size(), 8 * sizeof(int32_t));

  // The same bytes inline.
  ModelInferRequest plain = RawRequest({1}, {"file A"});
  Set(plain, "mode", "tiny");
  ASSERT_TRUE(Infer(plain).ok());
  EXPECT_EQ(response_.raw_output_contents(0), object.Get(kRowsAt + 64, kRowBytes));
}

TEST_F(KserveSharedMemoryTest, BatchesGoThroughIt) {
  const ClientObject object(kObject, false);
  RegisterBoth(object);
  const std::string raw = RawElement("A") + RawElement("B");
  object.Put(0, raw);
  ModelInferRequest request = Request({2, 1}, raw.size(), 2 * kRowBytes);
  auto& geometry = *request.add_outputs();
  geometry.set_name("geometry");
  SetRegion(*geometry.mutable_parameters(), "in", 64, 1024);
  ASSERT_TRUE(Infer(request).ok());
  EXPECT_EQ(object.Get(kRowsAt + 64, 2 * kRowBytes),
            std::string(kRowBytes, 'A') + std::string(kRowBytes, 'B'));
  int32_t rows[16];
  std::memcpy(rows, object.Get(1024, 64).data(), 64);
  EXPECT_EQ(rows[7], 72);  // global_rows of the first image
  EXPECT_EQ(rows[15], 72);
}

TEST_F(KserveSharedMemoryTest, RegionsAreListedAndForgotten) {
  const ClientObject object(kObject, false);
  RegisterBoth(object);
  EXPECT_EQ(Register("in", object.key(), 10).error_code(), grpc::ALREADY_EXISTS);
  inference::SystemSharedMemoryStatusResponse status;
  ASSERT_TRUE(Status("", &status).ok());
  ASSERT_EQ(status.regions_size(), 2);
  const auto& out = status.regions().at("out");
  EXPECT_EQ(out.name(), "out");
  EXPECT_EQ(out.key(), object.key());
  EXPECT_EQ(out.offset(), kRowsAt);
  EXPECT_EQ(out.byte_size(), kObject - kRowsAt);
  status.Clear();
  ASSERT_TRUE(Status("in", &status).ok());
  EXPECT_EQ(status.regions_size(), 1);
  EXPECT_EQ(Status("none", &status).error_code(), grpc::NOT_FOUND);
  EXPECT_TRUE(Unregister("none").ok());
  EXPECT_TRUE(Unregister("in").ok());
  EXPECT_EQ(rpc_.regions.usage().regions, 1);
  EXPECT_TRUE(Unregister("").ok());
  EXPECT_EQ(rpc_.regions.usage().regions, 0);
}

TEST_F(KserveSharedMemoryTest, WhatDoesNotFitIsRefused) {
  const ClientObject object(kObject, false);
  RegisterBoth(object);
  const std::string raw = RawElement("A");
  object.Put(0, raw);
  const auto input = [](ModelInferRequest & r) -> auto& {
    return *r.mutable_inputs(0)->mutable_parameters();
  };
  const auto output = [](ModelInferRequest & r) -> auto& {
    return *r.mutable_outputs(0)->mutable_parameters();
  };
  struct Case {
    std::function<void(ModelInferRequest&)> change;
    grpc::StatusCode code;
    std::string text;
  };
  const std::vector<Case> cases = {
      {[&](auto& r) { SetRegion(input(r), "none", 5); }, grpc::NOT_FOUND, "none"},
      {[&](auto& r) { SetRegion(output(r), "none", 5); }, grpc::NOT_FOUND, "none"},
      {[&](auto& r) { SetRegion(input(r), "in", 0); }, grpc::INVALID_ARGUMENT, "lie in it"},
      {[&](auto& r) { SetRegion(input(r), "in", -1); }, grpc::INVALID_ARGUMENT, "0 or more"},
      {[&](auto& r) { SetRegion(input(r), "in", 5, -1); }, grpc::INVALID_ARGUMENT, "0 or more"},
      {[&](auto& r) { SetRegion(input(r), "in", INT64_MAX, INT64_MAX); }, grpc::INVALID_ARGUMENT,
       "lie in it"},
      {[&](auto& r) { SetRegion(input(r), "in", 5, kRowsAt - 4); }, grpc::INVALID_ARGUMENT,
       "lie in it"},
      {[&](auto& r) { SetRegion(input(r), "out", 3 << 20); }, grpc::RESOURCE_EXHAUSTED,
       "--max-image-bytes"},
      {[&](auto& r) { SetRegion(input(r), "in", 6); }, grpc::INVALID_ARGUMENT, "1 bytes more"},
      {[&](auto& r) { SetRegion(input(r), "in", 4); }, grpc::INVALID_ARGUMENT, "0 follow"},
      {[&](auto& r) { input(r).erase("shared_memory_byte_size"); }, grpc::INVALID_ARGUMENT,
       "needs both"},
      {[&](auto& r) { input(r).erase("shared_memory_region"); }, grpc::INVALID_ARGUMENT,
       "needs both"},
      {[&](auto& r) { input(r)["shared_memory_region"].set_int64_param(1); },
       grpc::INVALID_ARGUMENT, "no string_param"},
      {[&](auto& r) { input(r)["shared_memory_kind"].set_int64_param(1); }, grpc::INVALID_ARGUMENT,
       "unknown parameter 'shared_memory_kind'"},
      {[&](auto& r) { SetRegion(output(r), "out", kRowBytes - 1); }, grpc::INVALID_ARGUMENT,
       "shared_memory_byte_size of it is"},
      {[](auto& r) { r.add_raw_input_contents("x"); }, grpc::INVALID_ARGUMENT,
       "1 raw_input_contents and no contents and a shared memory region"},
      {[](auto& r) { r.mutable_inputs(0)->mutable_contents(); }, grpc::INVALID_ARGUMENT,
       "and contents and a shared memory region"},
  };
  for (const Case& bad : cases) {
    ModelInferRequest request = Request({1}, raw.size(), kRowBytes);
    bad.change(request);
    const grpc::Status status = Infer(request);
    EXPECT_EQ(status.error_code(), bad.code) << bad.text << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(bad.text));
  }
  EXPECT_TRUE(Infer(Request({1}, raw.size(), kRowBytes)).ok());
  for (const char* key : {"/../../etc/passwd", "/etc/passwd", "psm_other", "", "/deepencoder\n"}) {
    EXPECT_EQ(Register("bad", key, 10).error_code(), grpc::INVALID_ARGUMENT) << key;
  }
}

TEST_F(KserveSharedMemoryTest, CudaIsRefusedWithAReason) {
  grpc::ClientContext status, registering, unregistering;
  inference::CudaSharedMemoryStatusResponse listed;
  inference::CudaSharedMemoryRegisterResponse registered;
  inference::CudaSharedMemoryUnregisterResponse unregistered;
  for (const grpc::Status& answer :
       {stub_->CudaSharedMemoryStatus(&status, {}, &listed),
        stub_->CudaSharedMemoryRegister(&registering, {}, &registered),
        stub_->CudaSharedMemoryUnregister(&unregistering, {}, &unregistered)}) {
    EXPECT_EQ(answer.error_code(), grpc::UNIMPLEMENTED);
    EXPECT_THAT(answer.error_message(), HasSubstr("CUDA shared memory is not served"));
  }
}

TEST_F(KserveSharedMemoryTest, NoMethodAboutRegionsParsesALongMessage) {
  ExpectRefusesLongMessages(
      grpc::CreateChannel(server_->addresses().front(), grpc::InsecureChannelCredentials()),
      "inference.GRPCInferenceService", {"ModelInfer", "ModelStreamInfer"});
}

}  // namespace
}  // namespace deepencoder::kserve
