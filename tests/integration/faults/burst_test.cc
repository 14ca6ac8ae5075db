// 2,000 requests from 200 clients, each with a connection of its own, at once.
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <atomic>
#include <thread>

#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "tests/integration/faults/fault_fixture.h"

namespace deepencoder {
namespace {

constexpr int kClients = 200, kRequestsEach = 10;

class BurstTest : public FaultTest {
 protected:
  std::unique_ptr<v1::VisionEncoder::Stub> NewStub() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::VisionEncoder::NewStub(grpc::CreateCustomChannel(
        server().address("unix"), grpc::InsecureChannelCredentials(), arguments));
  }

  // Half of the clients send their requests one after the other, half all at once.
  void Send(const v1::EncodeImageRequest& request, const std::string& rows) {
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&, at_once = i % 2 == 0] {
        const auto stub = NewStub();
        std::vector<std::thread> calls;
        for (int call = 0; call < kRequestsEach; ++call) {
          const auto send = [&] {
            grpc::ClientContext context;
            context.set_wait_for_ready(true);
            v1::EncodeImageResponse reply;
            const grpc::Status status = stub->EncodeImage(&context, request, &reply);
            ++codes_[status.error_code()];
            if (status.ok() && reply.data() != rows) ++wrong_;
          };
          if (at_once) {
            calls.emplace_back(send);
          } else {
            send();
          }
        }
        for (std::thread& call : calls) call.join();
      });
    }
    for (std::thread& client : clients) client.join();
    calls_made_ += kClients * kRequestsEach;
  }

  std::array<std::atomic<int>, grpc::StatusCode::UNAUTHENTICATED + 1> codes_{};
  std::atomic<int> wrong_{0};
};

TEST_F(BurstTest, EachRequestHasOneAnswerAndTheCountersSaySo) {
  // Decode workers have their successors' descriptors before their thousandth image.
  Start({"--max-images-in-flight=64", "--decode-threads=2", "--decode-sandbox=off"});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  const std::string rows = RowsOf("one_pixel.png");
  v1::EncodeImageRequest request;
  request.set_encoded(ReadImage("one_pixel.png").encoded);
  request.set_mode(v1::MODE_TINY);
  Send(request, rows);

  const int good = codes_[grpc::StatusCode::OK];
  const int full = codes_[grpc::StatusCode::RESOURCE_EXHAUSTED];
  EXPECT_EQ(good + full, kClients * kRequestsEach);
  EXPECT_GT(good, 0);
  EXPECT_EQ(wrong_, 0);
  ExpectNothingIsLeft();
  auto counted = server().Metrics();
  EXPECT_EQ(counted[R"(deepencoder_requests_total{code="OK",method="EncodeImage"})"], good + 1);
  EXPECT_EQ(
      counted[R"(deepencoder_requests_total{code="RESOURCE_EXHAUSTED",method="EncodeImage"})"],
      full);
  EXPECT_EQ(counted[R"(deepencoder_rejected_total{reason="images"})"], full);
  EXPECT_EQ(counted[R"(deepencoder_images_total{mode="tiny"})"], good + 1);
  std::printf("%d good, %d refused\n", good, full);
}

}  // namespace
}  // namespace deepencoder
