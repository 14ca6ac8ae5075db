#include "tests/integration/faults/fault_fixture.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/integration/faults/fault_rules.h"

namespace deepencoder {
namespace {

const char* const kImages[] = {"small_page.png", "palette.png", "one_pixel.png"};

int Entries(const std::string& folder) {
  int count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

int OpenFiles(pid_t process) { return Entries(absl::StrCat("/proc/", process, "/fd")); }
int Threads(pid_t process) { return Entries(absl::StrCat("/proc/", process, "/task")); }

FaultTest::FaultTest()
    : name_(testing::UnitTest::GetInstance()->current_test_info()->name()),
      rules_path_(WorkFolder() + "/" + name_ + ".rules") {}

void FaultTest::Start(const std::vector<std::string>& flags, const std::string& rules) {
  SetRules(rules);
  setenv(faults::kRulesVariable, rules_path_.c_str(), 1);
  std::vector<std::string> all = {"--modes=tiny", "--no-warm-up"};
  all.insert(all.end(), flags.begin(), flags.end());
  server_ = std::make_unique<RunningServer>(name_, all, DEEPENCODER_FAULTY_SERVER_PROGRAM);
  unsetenv(faults::kRulesVariable);
  if (server_->ready()) client_ = server_->NewClient("unix");
}

void FaultTest::SetRules(const std::string& rules) {
  std::ofstream(rules_path_ + ".new") << rules << "\n";
  ASSERT_EQ(std::rename((rules_path_ + ".new").c_str(), rules_path_.c_str()), 0);
}

client::EncodeOptions FaultTest::Tiny(absl::Duration timeout) {
  client::EncodeOptions options;
  options.mode = client::Mode::kTiny;
  options.timeout = timeout;
  return options;
}

absl::StatusOr<client::Embeddings> FaultTest::Encode(const std::string& image) {
  ++calls_made_;
  return client_->Encode(ReadImage(image), Tiny());
}

const std::string& FaultTest::RowsOf(const std::string& image) {
  std::string& rows = rows_[image];
  if (rows.empty()) {
    const auto alone = Encode(image);
    EXPECT_TRUE(alone.ok()) << alone.status();
    if (alone.ok()) rows = alone->data;
    idle_files_ = OpenFiles(server_->process().pid());
  }
  return rows;
}

std::map<absl::StatusCode, int> FaultTest::Burst(int count) {
  std::vector<std::future<absl::StatusOr<client::Embeddings>>> calls;
  for (int i = 0; i < count; ++i) {
    ++calls_made_;
    calls.push_back(client_->EncodeFuture(ReadImage(kImages[i % std::size(kImages)]), Tiny()));
  }
  std::map<absl::StatusCode, int> codes;
  for (int i = 0; i < count; ++i) {
    const auto answer = calls[i].get();
    ++codes[answer.status().code()];
    if (!answer.ok()) continue;
    EXPECT_EQ(answer->data, RowsOf(kImages[i % std::size(kImages)]));
  }
  return codes;
}

bool FaultTest::Serving() {
  const auto health = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(server_->address("unix"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = health->Check(&context, {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  const bool serving = response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  return serving;
}

double FaultTest::CallsCounted() {
  double sum = 0;
  for (const auto& [name, value] : server_->Metrics()) {
    if (name.starts_with("deepencoder_requests_total{") &&
        name.find("method=\"EncodeImage\"") != std::string::npos) {
      sum += value;
    }
  }
  return sum;
}

void FaultTest::ExpectNothingIsLeft() {
  EXPECT_TRUE(Eventually([&] { return CallsCounted() == calls_made_; }))
      << CallsCounted() << " of " << calls_made_;
  EXPECT_TRUE(Eventually([&] {
    auto now = server_->Metrics();
    return now["deepencoder_in_flight"] == 0 && now["deepencoder_in_flight_bytes"] == 0 &&
           now["deepencoder_queue_items"] == 0 && now["deepencoder_queue_bytes"] == 0 &&
           now[R"(deepencoder_device_memory_bytes{device="0",kind="views"})"] == 0;
  }));
  EXPECT_TRUE(Eventually([&] { return OpenFiles(server_->process().pid()) <= idle_files_; }))
      << OpenFiles(server_->process().pid()) << " of " << idle_files_;
}

}  // namespace deepencoder
