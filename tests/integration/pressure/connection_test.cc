// Too many connections, connections of clients that say nothing, and a server without descriptors.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/integration/pressure/pressure_fixture.h"
#include "tests/integration/pressure/silent_connection.h"

namespace deepencoder {
namespace {

size_t DescriptorsOf(pid_t process) {
  const std::filesystem::directory_iterator open("/proc/" + std::to_string(process) + "/fd");
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

// Connections that stay until the next flood. Whoever is let in and says nothing is closed after ten seconds, which
// makes room for another: in a flood that takes longer than that, fewer are refused.
class Flood {
 public:
  explicit Flood(const RunningServer& server) : server_(server) {}

  // How many of `count` new connections the server refuses for `reason`.
  double Refused(const std::string& reason, int count, uint32_t from = 1) {
    const std::string refused = "deepencoder_connections_refused_total{reason=\"" + reason + "\"}";
    const double before = server_.Metrics()[refused];
    connections_.clear();
    for (int i = 0; i < count; ++i) connections_.emplace_back(server_.address("grpc"), from);
    for (const SilentConnection& each : connections_) each.IsLetIn();  // once that is decided
    return server_.Metrics()[refused] - before;
  }

 private:
  const RunningServer& server_;
  std::vector<SilentConnection> connections_;
};

TEST(PressureTest, ConnectionsBeyondTheLimitAreClosed) {
  RunningServer server("connections", Quick({"--max-connections=4"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto early = server.NewClient();
  ASSERT_TRUE(early->Info().ok());
  {
    Flood flood(server);
    EXPECT_TRUE(Eventually([&] { return flood.Refused("limit", 40) >= 30; }));
    EXPECT_LE(server.Metrics()["deepencoder_connections"], 4);
    EXPECT_TRUE(early->Info().ok());  // who is in stays in
  }
  EXPECT_TRUE(Eventually([&] { return Works(server).ok(); }));
}

TEST(PressureTest, OneAddressDoesNotTakeAllConnections) {
  RunningServer server("addresses", Quick({"--listen=0.0.0.0:0", "--max-connections=64",
                                           "--max-connections-per-address=4"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  {
    Flood flood(server);
    EXPECT_TRUE(Eventually([&] {
      return flood.Refused("address", 100, 2) >= 96 &&
             server.Metrics()["deepencoder_connections"] == 4;
    }));
    const client::ClientOptions options;
    const std::string port = server.address("grpc").substr(server.address("grpc").rfind(':'));
    const auto other = client::Client::Create("127.0.0.1" + port, options);
    EXPECT_TRUE((*other)->Encode(ReadImage("palette.png"), Tiny()).ok());
  }
  // Once they are gone that address is let in again.
  EXPECT_TRUE(Eventually([&] { return SilentConnection(server.address("grpc"), 2).IsLetIn(); }));
}

// For a program that is started meanwhile: UBSan makes a pipe to learn whether memory can be read, and takes an object
// for one of another type when it gets none.
class WithoutTypeChecks {
 public:
  WithoutTypeChecks() {
    const std::string path = WorkFolder() + "/ubsan.suppressions";
    std::ofstream(path) << "vptr_check:*\n";
    setenv("UBSAN_OPTIONS", (before_ + ":suppressions=" + path).c_str(), 1);
  }
  ~WithoutTypeChecks() { setenv("UBSAN_OPTIONS", before_.c_str(), 1); }
  WithoutTypeChecks(const WithoutTypeChecks&) = delete;
  WithoutTypeChecks& operator=(const WithoutTypeChecks&) = delete;

 private:
  const char* set_ = std::getenv("UBSAN_OPTIONS");
  const std::string before_ = set_ == nullptr ? "" : set_;
};

TEST(PressureTest, WithoutDescriptorsItRefusesAndRecovers) {
  std::optional<WithoutTypeChecks> without_type_checks(std::in_place);
  RunningServer server("descriptors", Quick({}));
  without_type_checks.reset();
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  // Stays: the end of a connection would free a descriptor at any time.
  const auto early = server.NewClient();
  ASSERT_TRUE(early->Encode(ReadImage("palette.png"), Tiny()).ok());
  const pid_t process = server.process().pid();
  rlimit limit{};
  ASSERT_EQ(prlimit(process, RLIMIT_NOFILE, nullptr, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = DescriptorsOf(process) + 3;
  ASSERT_EQ(prlimit(process, RLIMIT_NOFILE, &low, nullptr), 0);
  {
    std::vector<SilentConnection> flood;
    bool refused = false;
    // Once is enough, but for what the server opens for a moment and closes after the flood.
    for (int tries = 0; tries < 5 && !refused; ++tries) {
      for (int i = 0; i < 100; ++i) flood.emplace_back(server.address("grpc"));
      EXPECT_TRUE(Eventually([&] { return DescriptorsOf(process) + 1 >= low.rlim_cur; }));
      refused = !Works(server).ok();
    }
    EXPECT_TRUE(refused);
    EXPECT_TRUE(early->Encode(ReadImage("palette.png"), Tiny()).ok());  // who is in stays in
    EXPECT_TRUE(server.process().running());
  }
  // Their ends free what there is, without the limit being raised.
  EXPECT_TRUE(Eventually([&] { return Works(server).ok(); })) << server.process().Stderr();
  ASSERT_EQ(prlimit(process, RLIMIT_NOFILE, &limit, nullptr), 0);
  EXPECT_GE(server.Metrics()["deepencoder_connections_refused_total{reason=\"descriptors\"}"], 1);
}

// While it is there, programs that are started have so many descriptors at most.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t most) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit low = before_;
    low.rlim_cur = most;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(PressureTest, ConnectionsLeaveDescriptorsForWhatElseIsOpened) {
  std::optional<FewDescriptors> few(400);
  RunningServer server(
      "reserve", Quick({"--decode-threads=2", "--shared-memory", "--shared-memory-regions=150",
                        "--admin-listen=unix:" + WorkFolder() + "/reserve.admin"}));
  few.reset();
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  Flood flood(server);
  // 400 less 128 that every server needs, 2 x 3 of decode workers, 150 regions, 32 to the admin service.
  constexpr int kRoom = 400 - 128 - 6 - 150 - 32;
  EXPECT_TRUE(Eventually([&] {
    return flood.Refused("limit", 150) == 150 - kRoom &&
           server.Metrics()["deepencoder_connections"] == kRoom;
  }));
}

TEST(PressureTest, WhoSaysNothingAndWhoVanishesIsGivenUp) {
  RunningServer server("silent", Quick({"--keepalive=1s"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::string active = "deepencoder_calls_active{method=\"EncodeImages\"}";
  const SilentConnection silent(server.address("grpc"));
  const SilentConnection vanished(server.address("grpc"));
  vanished.Send(BeginningOfCall("/deepencoder.v1.VisionEncoder/EncodeImages"));
  EXPECT_TRUE(Eventually([&] { return server.Metrics()[active] == 1; }));
  EXPECT_TRUE(Eventually([&] { return silent.HasEnded(); }));  // ten seconds
  EXPECT_TRUE(
      Eventually([&] { return vanished.HasEnded(); }));  // asked after one, given up 20 later
  EXPECT_TRUE(Eventually([&] { return server.Metrics()[active] == 0; }));
  EXPECT_TRUE(Works(server).ok()) << Works(server);
}

}  // namespace
}  // namespace deepencoder
