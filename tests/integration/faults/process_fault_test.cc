// What surrounds the server fails: memory, the disk, the clock, clients, the server itself.
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "encoder/weights/synthetic.h"
#include "tests/integration/faults/fault_fixture.h"

namespace deepencoder {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST_F(FaultTest, MemoryThatRunsOutEndsOneRequest) {
  Start({});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  RowsOf("palette.png");
  client::Image large;  // 3 MB, which are copied whole when the request is parsed
  large.width = large.height = 1000;
  large.rgb.assign(3'000'000, '\x40');
  ++calls_made_;
  ASSERT_TRUE(caller().Encode(large, Tiny()).ok());
  SetRules("new fail bytes=2000000");
  ASSERT_TRUE(Eventually([&] {
    return server().process().Stderr().find("faults: new 2000000") != std::string::npos;
  }));
  for (int i = 0; i < 5; ++i) {
    ++calls_made_;
    EXPECT_EQ(caller().Encode(large, Tiny()).status().code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(Encode("palette.png").ok());
  }
  SetRules("");
  ExpectNothingIsLeft();
  EXPECT_TRUE(Serving());
}

TEST_F(FaultTest, TheClockIsSetWhileImagesAreEncoded) {
  Start({});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  const std::string rows = RowsOf("palette.png");
  std::string rules = "encode hang";
  for (const char* jump : {"3600", "-3600", "31536000", "0"}) {
    SetRules(rules);
    ++calls_made_;
    auto answer = caller().EncodeFuture(ReadImage("palette.png"), Tiny(absl::Minutes(1)));
    ASSERT_TRUE(Eventually([&] { return server().Metrics()["deepencoder_in_flight"] == 1; }));
    rules = std::string("clock jump seconds=") + jump + "\nencode hang";
    SetRules(rules);
    ASSERT_TRUE(Eventually([&] {
      return server().process().Stderr().find(std::string("faults: clock ") + jump + "\n") !=
             std::string::npos;
    }));
    // One that waits behind it in the queue, with a deadline by the clock as it is now.
    ++calls_made_;
    auto queued = caller().EncodeFuture(ReadImage("palette.png"), Tiny(absl::Minutes(1)));
    ASSERT_TRUE(Eventually([&] { return server().Metrics()["deepencoder_in_flight"] == 2; }));
    SetRules(std::string("clock jump seconds=") + jump);
    for (auto* future : {&answer, &queued}) {
      const auto result = future->get();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->data, rows);
      EXPECT_GE(result->timings.total, 0);
      EXPECT_LT(result->timings.total, 600);
    }
  }
  ExpectNothingIsLeft();
  server().process().Signal(SIGTERM);
  EXPECT_EQ(server().process().Wait(), 0);
}

TEST_F(FaultTest, AFullDiskForTheLogLosesLinesAndNothingElse) {
  const std::string log =
      WorkFolder() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
  for (const char* end : {".err", ".out"}) std::filesystem::create_symlink("/dev/full", log + end);
  Start({"--log-level=debug"});
  ASSERT_TRUE(server().ready());
  for (const char* image : {"palette.png", "small_page.png", "one_pixel.png"}) RowsOf(image);
  EXPECT_EQ(Burst(12)[StatusCode::kOk], 12);
  ExpectNothingIsLeft();
  server().process().Signal(SIGTERM);
  EXPECT_EQ(server().process().Wait(), 0);
}

// Killed while it is decoded and made views of, while it waits, and while it is encoded.
TEST_F(FaultTest, AClientIsKilledAtEachStage) {
  Start({"--decode-threads=2"});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  RowsOf("palette.png");
  const std::string address = "--server=" + server().address("unix");
  const auto in_flight = [&](double count) {
    return Eventually([&] { return server().Metrics()["deepencoder_in_flight"] == count; });
  };
  for (const char* stage : {"views hang", "encode hang"}) {
    SetRules(stage);
    std::vector<std::unique_ptr<Process>> clients;
    for (int i = 0; i < 2; ++i) {  // of the second stage's, one waits in the queue for the other
      ++calls_made_;
      clients.push_back(std::make_unique<Process>(
          DEEPENCODER_CLIENT_PROGRAM,
          std::vector<std::string>{"encode", TestImage("palette.png"), address, "--mode=tiny"},
          WorkFolder() + "/killed" + std::to_string(i)));
    }
    ASSERT_TRUE(in_flight(2)) << stage;
    for (const auto& client : clients) client->Signal(SIGKILL);
    for (const auto& client : clients) EXPECT_EQ(client->Wait(), 128 + SIGKILL);
    SetRules("");
    ASSERT_TRUE(in_flight(0)) << stage;
    EXPECT_TRUE(Encode("palette.png").ok()) << stage;
  }
  ExpectNothingIsLeft();
}

// At whatever they are then: connecting, sending a large image, waiting, receiving.
TEST_F(FaultTest, ClientsAreKilledAtAnyTime) {
  Start({"--modes=tiny"});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  const std::string rows = RowsOf("palette.png");
  for (int i = 0; i < 12; ++i) {
    const double before = CallsCounted();
    Process client(DEEPENCODER_CLIENT_PROGRAM,
                   {"bench", TestImage("page_rgb.jpg"), "--server=" + server().address("unix"),
                    "--mode=tiny", "--concurrency=16", "--duration=10m", "--warmup=0"},
                   WorkFolder() + "/killed_bench");
    // The first while it connects, the others after some answers.
    ASSERT_TRUE(i == 0 || Eventually([&] { return CallsCounted() > before + i; }));
    client.Signal(SIGKILL);
    EXPECT_EQ(client.Wait(), 128 + SIGKILL);
    const auto alone = Encode("palette.png");
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ(alone->data, rows);
  }
  ASSERT_TRUE(Eventually([&] {
    return server().Metrics()[R"(deepencoder_calls_active{method="EncodeImage"})"] == 0;
  }));
  calls_made_ = static_cast<int>(CallsCounted());  // nobody is left who knew how many
  ExpectNothingIsLeft();
}

TEST(ServerKilledTest, ClientsThatRetryLoseNothing) {
  constexpr int kClients = 6, kRequests = 12, kKills = 3;
  const auto start = [] {
    return std::make_unique<RunningServer>("server_killed",
                                           std::vector<std::string>{"--modes=tiny", "--no-warm-up"},
                                           DEEPENCODER_FAULTY_SERVER_PROGRAM);
  };
  auto server = start();
  ASSERT_TRUE(server->ready()) << server->process().Stderr();
  const std::string address = server->address("unix");
  client::EncodeOptions options;
  options.mode = client::Mode::kTiny;
  options.timeout = absl::Minutes(10);
  const auto alone = server->NewClient("unix")->Encode(ReadImage("palette.png"), options);
  ASSERT_TRUE(alone.ok());

  std::atomic<int> answered{0};
  std::vector<std::future<void>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::async(std::launch::async, [&] {
      client::ClientOptions patient;
      patient.retry.max_attempts = 1000;
      const auto client = client::Client::Create(address, patient);
      for (int request = 0; request < kRequests; ++request) {
        const auto rows = (*client)->Encode(ReadImage("palette.png"), options);
        ASSERT_TRUE(rows.ok()) << rows.status();
        ASSERT_EQ(rows->data, alone->data);
        ++answered;
      }
    }));
  }
  for (int kill = 1; kill <= kKills; ++kill) {
    ASSERT_TRUE(Eventually([&] { return answered >= kill * kClients * kRequests / (kKills + 1); }));
    server->process().Signal(SIGKILL);
    EXPECT_EQ(server->process().Wait(), 128 + SIGKILL);
    server = start();
    ASSERT_TRUE(server->ready()) << server->process().Stderr();
  }
  for (auto& client : clients) client.get();
  EXPECT_EQ(answered, kClients * kRequests);
}

// Somebody overwrites the file instead of replacing it, while the server reads it.
TEST_F(FaultTest, ACheckpointThatIsTruncatedWhileItIsReadIsRefused) {
  const std::string folder = WorkFolder() + "/truncated";
  ASSERT_TRUE(WriteSyntheticCheckpoint(folder, {.sam_depth = 3, .clip_layers = 2}).ok());
  auto starting =
      std::async(std::launch::async, [&] { Start({"--model=" + folder}, "backend hang"); });
  const std::string log =
      WorkFolder() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".err";
  ASSERT_TRUE(
      Eventually([&] { return FileContents(log).find("checkpoint opened") != std::string::npos; }));
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") {
      std::filesystem::resize_file(entry.path(), std::filesystem::file_size(entry.path()) / 2);
    }
  }
  SetRules("");
  starting.get();
  EXPECT_EQ(server().process().Wait(), 1) << server().process().Stderr();
  EXPECT_THAT(server().process().Stderr(), HasSubstr("cannot start"));
  EXPECT_THAT(server().process().Stderr(), HasSubstr(folder));
}

}  // namespace
}  // namespace deepencoder
