#include "client/channel.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "client/client.h"
#include "tests/client/client_fixture.h"

namespace deepencoder::client {
namespace {

TEST(TokenTest, IsNotSentInTheClear) {
  ClientOptions options;
  options.token = "sesame";
  for (const char* target : {"encoder.example:1", "10.0.0.1:1", "127.0.0.1.example:1",
                             "ipv4:127.0.0.1:1,10.0.0.1:1", "dns:///localhost.example:1"}) {
    EXPECT_EQ(Client::Create(target, options).status().code(), absl::StatusCode::kInvalidArgument)
        << target;
  }
  for (const char* target : {"localhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "unix:/x"}) {
    EXPECT_TRUE(Client::Create(target, options).ok()) << target;
  }
}

// The environment of a process that is to reach the world through a proxy, where nobody listens.
class ProxyEnvironment {
 public:
  ProxyEnvironment() {
    for (const auto& [name, value] : wanted_) {
      const char* before = std::getenv(name.c_str());
      if (before != nullptr) before_[name] = before;
      Set(name, value);
    }
  }
  ~ProxyEnvironment() {
    for (const auto& [name, value] : wanted_) {
      const auto before = before_.find(name);
      Set(name, before == before_.end() ? std::nullopt : std::optional(before->second));
    }
  }

 private:
  static void Set(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }

  const std::map<std::string, std::optional<std::string>> wanted_ = {
      {"http_proxy", "http://127.0.0.1:1"},
      {"https_proxy", std::nullopt},
      {"grpc_proxy", std::nullopt},
      {"no_proxy", std::nullopt},
      {"no_grpc_proxy", std::nullopt}};
  std::map<std::string, std::string> before_;
};

TEST(ProxyTest, AServerOfThisMachineIsReachedWithoutIt) {
  RpcServer server;
  server.Serve();
  server.engine->Play([](const EncodeJob& job) { return FilledResult(job); });
  const ProxyEnvironment proxy;
  ClientOptions options = Impatient(1);
  options.token = "sesame";
  const auto client = Client::Create(server.address(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  const auto rows = (*client)->Encode(SmallImage(), Tiny());
  EXPECT_TRUE(rows.ok()) << rows.status();
}

}  // namespace
}  // namespace deepencoder::client
