// New weights for a server that is at work.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/time/clock.h"
#include "deepencoder/v1/admin.grpc.pb.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "encoder/weights/checkpoint.h"
#include "encoder/weights/synthetic.h"
#include "inference/grpc_service.grpc.pb.h"
#include "tests/integration/server_fixture.h"

namespace deepencoder {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::vector<std::string> kImages = {"palette.png", "gray.jpg", "exif_1.jpg"};
constexpr size_t kMib = size_t{1} << 20;

// Of the same depth as MiniCheckpoint, with other values.
const std::string& OtherCheckpoint() {
  static const std::string folder = [] {
    std::string path = WorkFolder() + "/other";
    SyntheticOptions options;
    options.sam_depth = 3;
    options.clip_layers = 2;
    options.seed = 7;
    EXPECT_TRUE(WriteSyntheticCheckpoint(path, options).ok());
    return path;
  }();
  return folder;
}

std::string FingerprintOf(const std::string& folder) {
  const auto checkpoint = Checkpoint::Open(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return (*checkpoint)->fingerprint();
}

client::EncodeOptions Tiny() {
  client::EncodeOptions options;
  options.mode = client::Mode::kTiny;
  options.timeout = absl::Minutes(10);
  return options;
}

std::vector<std::string> WithAdmin(const std::string& name, std::vector<std::string> more = {}) {
  std::vector<std::string> flags = {"--modes=tiny",
                                    "--admin-listen=unix:" + WorkFolder() + "/" + name + ".admin"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

grpc::Status Reload(const std::string& address, const std::string& model,
                    v1::ReloadModelResponse* response) {
  const auto stub =
      v1::Admin::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ReloadModelRequest request;
  request.set_model(model);
  return stub->ReloadModel(&context, request, response);
}

// The rows of each of kImages, as this server gives them.
std::vector<std::string> AnswersOf(const RunningServer& server) {
  std::vector<std::string> answers;
  const auto client = server.NewClient();
  for (const std::string& image : kImages) {
    const auto rows = client->Encode(ReadImage(image), Tiny());
    EXPECT_TRUE(rows.ok()) << rows.status();
    answers.emplace_back(rows.ok() ? rows->data : "");
  }
  return answers;
}

// Clients that never rest, and look at every answer: its bits must be those of the weights that were
// served at some moment between its request and its answer.
class Load {
 public:
  // `answers`: by weights (the original ones first), then by image.
  Load(const RunningServer& server, std::vector<std::vector<std::string>> answers)
      : server_(server), answers_(std::move(answers)) {
    for (int i = 0; i < 4; ++i) threads_.emplace_back([this, i] { EncodeOneByOne(i); });
    threads_.emplace_back([this] { EncodeInAStream(); });
  }
  ~Load() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  // A reload begins, which will be the weights' change number `begun()`.
  void Begin() { ++begun_; }
  void End() { ended_ = begun_.load(); }
  int64_t answered() const { return answered_; }
  // Waits for answers to requests that are sent from now on.
  bool AwaitAnswers() const {
    const int64_t until = answered_ + 20;
    return Eventually([&] { return answered_ >= until || testing::Test::HasFailure(); });
  }

 private:
  void Check(const absl::StatusOr<client::Embeddings>& rows, size_t image, int before) {
    ++answered_;
    if (!rows.ok()) {
      ADD_FAILURE() << rows.status();
      return;
    }
    for (int change = before; change <= begun_; ++change) {
      if (rows->data == answers_[change % 2][image]) return;
    }
    ADD_FAILURE() << "the answer is of no weights that were served between changes " << before
                  << " and " << begun_;
  }

  void EncodeOneByOne(int thread) {
    const auto client = server_.NewClient(thread % 2 == 0 ? "grpc" : "unix");
    for (size_t i = thread; !done_; ++i) {
      const size_t image = i % kImages.size();
      const int before = ended_;
      Check(client->Encode(ReadImage(kImages[image]), Tiny()), image, before);
    }
  }

  void EncodeInAStream() {
    const auto client = server_.NewClient();
    std::vector<int> before;  // by request; `next` and the sink run on different threads
    std::mutex mutex;
    const absl::Status status = client->EncodeMany(
        [&]() -> std::optional<client::Image> {
          if (done_) return std::nullopt;
          const std::lock_guard lock(mutex);
          before.push_back(ended_);
          return ReadImage(kImages[(before.size() - 1) % kImages.size()]);
        },
        Tiny(), 3,
        [&](client::ManyResult result) {
          int settled;
          {
            const std::lock_guard lock(mutex);
            settled = before[result.index];
          }
          Check(result.embeddings, result.index % kImages.size(), settled);
        });
    EXPECT_TRUE(status.ok()) << status;
  }

  const RunningServer& server_;
  const std::vector<std::vector<std::string>> answers_;
  std::atomic<bool> done_{false};
  std::atomic<int> begun_{0}, ended_{0};
  std::atomic<int64_t> answered_{0};
  std::vector<std::thread> threads_;
};

std::string ServedFingerprint(const RunningServer& server) {
  const auto info = server.NewClient()->Info();
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? info->weights_fingerprint : "";
}

std::string KServeFingerprint(const RunningServer& server) {
  const auto stub = inference::GRPCInferenceService::NewStub(
      grpc::CreateChannel(server.address("grpc"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  inference::ModelConfigRequest request;
  request.set_name("deepseek-ocr");
  inference::ModelConfigResponse response;
  EXPECT_TRUE(stub->ModelConfig(&context, request, &response).ok());
  return response.config().parameters().at("weights_fingerprint").string_value();
}

double ModelInfoMetric(const RunningServer& server, const std::string& fingerprint) {
  return server.Metrics()
      ["deepencoder_model_info{model=\"deepseek-ocr\",synthetic=\"true\","
       "weights_fingerprint=\"" +
       fingerprint + "\"}"];
}

double Reloads(const RunningServer& server, const std::string& result) {
  return server.Metrics()["deepencoder_reloads_total{result=\"" + result + "\"}"];
}

TEST(ReloadTest, NoRequestIsLostAndEveryAnswerIsOfOldOrNewWeights) {
  const std::string folders[2] = {MiniCheckpoint(), OtherCheckpoint()};
  const std::string fingerprints[2] = {FingerprintOf(folders[0]), FingerprintOf(folders[1])};
  ASSERT_NE(fingerprints[0], fingerprints[1]);
  std::vector<std::vector<std::string>> answers;
  for (const std::string& folder : folders) {
    RunningServer server("reference", {"--modes=tiny", "--model=" + folder});
    ASSERT_TRUE(server.ready()) << server.process().Stderr();
    answers.push_back(AnswersOf(server));
  }
  ASSERT_NE(answers[0], answers[1]);

  // SIGHUP reads the folder again that is served: a link, which is turned to other weights.
  const std::string link = WorkFolder() + "/served", turned = WorkFolder() + "/turned";
  fs::create_directory_symlink(folders[0], link);
  RunningServer server("reload",
                       WithAdmin("reload", {"--model=" + link, "--cache-bytes=1MiB", "--slots=2"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  {
    Load load(server, answers);
    for (int change = 1; change <= 6; ++change) {
      ASSERT_TRUE(load.AwaitAnswers());
      const std::string& old_weights = fingerprints[(change - 1) % 2];
      const std::string& new_weights = fingerprints[change % 2];
      fs::create_directory_symlink(folders[change % 2], turned);
      fs::rename(turned, link);
      load.Begin();
      if (change % 3 == 0) {
        server.process().Signal(SIGHUP);
        ASSERT_TRUE(Eventually([&] { return Reloads(server, "ok") == change; }));
      } else if (change % 3 == 1) {
        v1::ReloadModelResponse response;
        const grpc::Status status = Reload(server.address("admin"), "", &response);
        ASSERT_TRUE(status.ok()) << status.error_message();
        EXPECT_EQ(response.model(), link);
        EXPECT_EQ(response.old_weights_fingerprint(), old_weights);
        EXPECT_EQ(response.new_weights_fingerprint(), new_weights);
        EXPECT_GT(response.seconds(), 0);
      } else {
        const Outcome outcome =
            RunClient({"reload", "--server=" + server.address("admin"), "--model=" + link});
        ASSERT_EQ(outcome.status, 0) << outcome.err;
        EXPECT_THAT(outcome.out, HasSubstr(old_weights + " -> " + new_weights));
      }
      load.End();
      EXPECT_EQ(ServedFingerprint(server), new_weights);
      EXPECT_EQ(KServeFingerprint(server), new_weights);
      EXPECT_EQ(ModelInfoMetric(server, new_weights), 1);
      EXPECT_EQ(ModelInfoMetric(server, old_weights), 0) << "both weights are said to be served";
    }
    ASSERT_TRUE(load.AwaitAnswers());
  }
  EXPECT_EQ(Reloads(server, "ok"), 6);
  EXPECT_EQ(AnswersOf(server), answers[0]);
  EXPECT_THAT(server.process().Stderr(), HasSubstr("old_fingerprint=" + fingerprints[1] +
                                                   " new_fingerprint=" + fingerprints[0]));
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 0) << server.process().Stderr();
}

// Half of the weights are no numbers.
std::string BrokenValues() {
  const std::string folder = WorkFolder() + "/broken_values";
  fs::copy(OtherCheckpoint(), folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto bytes = static_cast<std::streamoff>(entry.file_size());
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(bytes / 4);
    const std::string ones(bytes / 2, '\xff');
    file.write(ones.data(), static_cast<std::streamsize>(ones.size()));
  }
  return folder;
}

std::string CutShort() {
  const std::string folder = WorkFolder() + "/cut_short";
  fs::copy(OtherCheckpoint(), folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") fs::resize_file(entry, entry.file_size() / 2);
  }
  return folder;
}

TEST(ReloadTest, WhatIsRefusedChangesNothing) {
  RunningServer server("refused", WithAdmin("refused"));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const std::vector<std::string> answers = AnswersOf(server);
  const std::string fingerprint = ServedFingerprint(server);
  const auto refuse = [&](const std::string& model, grpc::StatusCode code,
                          const std::string& reason) {
    v1::ReloadModelResponse response;
    const grpc::Status status = Reload(server.address("admin"), model, &response);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(reason));
    EXPECT_THAT(server.process().Stderr(), HasSubstr("reload refused"));
    EXPECT_EQ(AnswersOf(server), answers);
    EXPECT_EQ(ServedFingerprint(server), fingerprint);
  };
  refuse(WorkFolder() + "/nowhere", grpc::StatusCode::NOT_FOUND, "nowhere: no such folder");
  refuse(CutShort(), grpc::StatusCode::INVALID_ARGUMENT, "truncated");
  refuse(BrokenValues(), grpc::StatusCode::INTERNAL, "not finite");
  EXPECT_EQ(Reloads(server, "checkpoint"), 2);
  EXPECT_EQ(Reloads(server, "failed"), 1);
  EXPECT_EQ(Reloads(server, "ok"), 0);
  const Outcome outcome =
      RunClient({"reload", "--server=" + server.address("admin"), "--model=/nowhere"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("NOT_FOUND: /nowhere"));
}

// Bytes of a line of /proc/PID/status.
size_t StatusOf(const RunningServer& server, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(const_cast<RunningServer&>(server).process().pid()) +
                     "/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    size_t kib = 0;
    if (words >> name >> kib && name == key + ":") return kib * 1024;
  }
  return 0;
}

TEST(ReloadTest, NoRoomForBothIsRefusedAndToldByHowMuch) {
  RunningServer server("no_room", WithAdmin("no_room"));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const size_t size = StatusOf(server, "VmSize");
  if (size > size_t{1} << 40) GTEST_SKIP() << "a sanitizer's shadow memory has no bounds";
  const std::vector<std::string> answers = AnswersOf(server);
  rlimit unlimited{}, tight{};
  const pid_t pid = server.process().pid();
  ASSERT_EQ(prlimit(pid, RLIMIT_AS, nullptr, &unlimited), 0);
  // The checkpoint's file of 115 MiB can be mapped, its weights of over 200 MiB have no room beside it.
  tight = {.rlim_cur = StatusOf(server, "VmSize") + 220 * kMib, .rlim_max = unlimited.rlim_max};
  ASSERT_EQ(prlimit(pid, RLIMIT_AS, &tight, nullptr), 0);
  v1::ReloadModelResponse response;
  grpc::Status status = Reload(server.address("admin"), OtherCheckpoint(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("no room for a second model: it needs "));
  EXPECT_EQ(AnswersOf(server), answers);
  EXPECT_EQ(Reloads(server, "memory"), 1);
  ASSERT_EQ(prlimit(pid, RLIMIT_AS, &unlimited, nullptr), 0);
  status = Reload(server.address("admin"), OtherCheckpoint(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(ReloadTest, ManyReloadsLeaveNoMemoryBehind) {
  RunningServer server("many", WithAdmin("many"));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  size_t settled = 0;
  constexpr int kReloads = 12, kWarm = 4;
  for (int i = 1; i <= kReloads; ++i) {
    v1::ReloadModelResponse response;
    const std::string& model = i % 2 == 1 ? OtherCheckpoint() : MiniCheckpoint();
    const grpc::Status status = Reload(server.address("admin"), model, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    AnswersOf(server);
    if (i == kWarm) settled = StatusOf(server, "RssAnon");
  }
  // A model is 230 MB, so one that stays would be seen. What the last images took is given back a second or two later.
  EXPECT_TRUE(Eventually([&] { return StatusOf(server, "RssAnon") < settled + 40 * kMib; }))
      << StatusOf(server, "RssAnon") / kMib << " MiB after " << settled / kMib;
}

TEST(ReloadTest, AStopDuringAReloadIsCleanAndSoIsOneBefore) {
  RunningServer server("stopped", WithAdmin("stopped"));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  server.process().Signal(SIGHUP);
  ASSERT_TRUE(
      Eventually([&] { return server.process().Stderr().find("reloading") != std::string::npos; }));
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 0) << server.process().Stderr();
}

TEST(ReloadTest, AdminAndEncodingAreNeverOnTheSameAddress) {
  RunningServer server("apart", WithAdmin("apart", {"--no-warm-up"}));
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  for (const char* what : {"grpc", "unix"}) {
    v1::ReloadModelResponse response;
    const grpc::Status status = Reload(server.address(what), "", &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << what;
  }
  const auto stub = v1::VisionEncoder::NewStub(
      grpc::CreateChannel(server.address("admin"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ModelInfo info;
  EXPECT_EQ(stub->GetModelInfo(&context, {}, &info).error_code(), grpc::StatusCode::UNIMPLEMENTED);

  RunningServer nowhere("nowhere", {"--modes=tiny", "--no-warm-up"});
  ASSERT_TRUE(nowhere.ready()) << nowhere.process().Stderr();
  EXPECT_EQ(RunClient({"reload", "--server=" + nowhere.address("grpc")}).status, 1);
  RunningServer open("open", {"--admin-listen=0.0.0.0:0"});
  EXPECT_EQ(open.process().Wait(), 2);
  EXPECT_THAT(open.process().Stderr(), HasSubstr("can be reached from other machines"));
}

}  // namespace
}  // namespace deepencoder
