// A region that is replaced, against a server that answers as the test says.
#include "client/sharing.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

#include "tests/client/client_fixture.h"

namespace deepencoder::client {
namespace {

class ScriptedServer final : public v1::SharedMemory::Service {
 public:
  grpc::Status RegisterRegion(grpc::ServerContext* /*context*/,
                              const v1::RegisterRegionRequest* /*request*/,
                              v1::RegisterRegionResponse* response) override {
    const int call = ++calls;
    if (call == 2) {
      replacing.set_value();
      go_on.get_future().wait();
      if (second_fails) return {grpc::StatusCode::UNAVAILABLE, "going down"};
    }
    response->set_handle("handle" + std::to_string(call));
    return grpc::Status::OK;
  }
  std::atomic<int> calls{0};
  bool second_fails = false;
  std::promise<void> replacing, go_on;
};

class ReplacementTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address =
        "unix:" + testing::TempDir() + "replacement_test." + std::to_string(getpid()) + ".sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    auto sharing = Sharing::Start(
        channel_, TinyModel(), 1 << 20, absl::Now() + absl::Minutes(1), [] {},
        [this] { ended_.set_value(watched_.expired()); });
    ASSERT_TRUE(sharing.ok()) << sharing.status();
    sharing_ = *std::move(sharing);
    watched_ = sharing_;
  }

  // The server has forgotten the region; returns once it is asked for another.
  void Forget() {
    v1::EncodeImageRequest request = SmallRequest();
    const auto block = sharing_->Place(request);
    ASSERT_TRUE(block.has_value());
    sharing_->OnRefusal(grpc::StatusCode::NOT_FOUND, *block);
    service_.replacing.get_future().wait();
  }

  ScriptedServer service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;  // as a client's: it must not end in a thread of its own
  std::shared_ptr<Sharing> sharing_;
  std::weak_ptr<Sharing> watched_;
  std::promise<bool> ended_;  // whether the object was gone then
};

TEST_F(ReplacementTest, KeepsTheObjectUntilItHasEnded) {
  Forget();
  sharing_.reset();  // as ShareMemory does, called again
  EXPECT_FALSE(watched_.expired());
  service_.go_on.set_value();
  EXPECT_TRUE(ended_.get_future().get());
}

TEST_F(ReplacementTest, IsTriedAgainIfItFails) {
  service_.second_fails = true;
  Forget();
  service_.go_on.set_value();
  ended_.get_future().wait();
  ended_ = {};
  ASSERT_TRUE(Eventually([this] {
    v1::EncodeImageRequest request = SmallRequest();
    return sharing_->Place(request).has_value();
  }));
  ended_.get_future().wait();  // the call that brought the region ends only after it is used
  EXPECT_EQ(service_.calls, 3);
}

}  // namespace
}  // namespace deepencoder::client
