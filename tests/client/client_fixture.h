// A client of the real RPC layer over a PuppetEngine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "client/client.h"
#include "tests/server/rpc/rpc_fixture.h"

namespace deepencoder::client {

inline Image SmallImage(const std::string& bytes = "file") {
  Image image;
  image.encoded = bytes;
  return image;
}

// What a server says that has the mode tiny alone.
inline v1::ModelInfo TinyModel() {
  v1::ModelInfo info;
  info.set_embedding_width(1280);
  info.mutable_limits()->set_max_image_bytes(1 << 20);
  v1::ModeInfo& mode = *info.add_modes();
  mode.set_mode(v1::MODE_TINY);
  mode.set_rows(73);
  return info;
}

inline EncodeOptions Tiny() {
  EncodeOptions options;
  options.mode = Mode::kTiny;
  return options;
}

// Retries at once, so that no test waits.
inline ClientOptions Impatient(int attempts = 3) {
  ClientOptions options;
  options.retry.max_attempts = attempts;
  options.retry.first_delay = absl::Milliseconds(1);
  return options;
}

inline std::string FileOf(const EncodeJob& job) {
  const auto& bytes = std::get<EncodedFile>(job.image).file.bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    server_.Serve();
    auto made = Client::Create(server_.address(), Impatient());
    ASSERT_TRUE(made.ok());
    client_ = *std::move(made);
  }

  RpcServer server_;
  std::unique_ptr<Client> client_;
};

}  // namespace deepencoder::client
