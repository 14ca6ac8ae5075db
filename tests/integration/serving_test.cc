// What a user does, with the real programs: encode, ask, scrape, break things.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "encoder/base/dtype.h"
#include "encoder/cpu/cpu_features.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "tests/integration/server_fixture.h"

namespace deepencoder {
namespace {

using client::EncodeOptions;
using client::Image;
using testing::HasSubstr;

EncodeOptions In(client::Mode mode, client::DType dtype = client::DType::kFp32) {
  EncodeOptions options;
  options.mode = mode;
  options.dtype = dtype;
  options.timeout = absl::Minutes(10);
  return options;
}

// The one tensor of a safetensors file of F16, as floats.
std::vector<float> ReadHalfSequence(const std::string& name) {
  const std::string file =
      FileContents(std::string(DEEPENCODER_TEST_DATA) + "/encoder/" + name + ".safetensors");
  EXPECT_GT(file.size(), 8) << name;
  if (file.size() <= 8) return {};
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  EXPECT_THAT(file.substr(8, header), HasSubstr("\"F16\""));
  const std::string data = file.substr(8 + header);
  std::vector<float> values(data.size() / 2);
  ConvertToFloat(DType::kFp16, data.data(), values.data(), values.size());
  return values;
}

// L2 over L2, of values rounded to F16 as the stored ones are.
double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  if (got.size() != want.size()) return HUGE_VAL;
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = double{RoundTo(DType::kFp16, got[i])} - want[i];
    error += difference * difference;
    norm += double{want[i]} * want[i];
  }
  return std::sqrt(error / norm);
}

class ServingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ =
        new RunningServer("serving", {"--max-image-bytes=4MiB", "--reflection", "--shared-memory"});
    ASSERT_TRUE(server_->ready()) << server_->process().Stderr();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  void TearDown() override {
    ASSERT_TRUE(server_->process().running()) << server_->process().Stderr();
  }

  // The server still does its work.
  static void ExpectServing() {
    const auto rows =
        server_->NewClient()->Encode(ReadImage("palette.png"), In(client::Mode::kTiny));
    EXPECT_TRUE(rows.ok()) << rows.status();
  }

  static RunningServer* server_;
};
RunningServer* ServingTest::server_ = nullptr;

// ------------------------------------------------------------------ conformance over the wire

struct SequenceCase {
  std::string file, image;
  client::Mode mode;
};
const SequenceCase kTinyPage = {"mini.sequence.tiny.small_page", "small_page.png",
                                client::Mode::kTiny};
const SequenceCase kGundamWide = {"mini.sequence.gundam.wide", "wide.jpg", client::Mode::kGundam};

double SequenceError(client::Client& client, const SequenceCase& what, client::DType dtype) {
  const auto rows = client.Encode(ReadImage(what.image), In(what.mode, dtype));
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? RelativeError(rows->ToFloats(), ReadHalfSequence(what.file)) : HUGE_VAL;
}

// Bars of the conformance values: relative L2 of a whole reply.
constexpr double kFp32Bar = 5e-5, kFp16Bar = 1.5e-3, kBf16Bar = 1.25e-2;

TEST_F(ServingTest, SequencesEqualTheReference) {
  const auto client = server_->NewClient();
  EXPECT_LE(SequenceError(*client, kTinyPage, client::DType::kFp32), kFp32Bar);
  EXPECT_LE(SequenceError(*client, kTinyPage, client::DType::kFp16), kFp16Bar);
  EXPECT_LE(SequenceError(*client, kTinyPage, client::DType::kBf16), kBf16Bar);
  EXPECT_LE(SequenceError(*client, kGundamWide, client::DType::kFp32), kFp32Bar);
}

TEST_F(ServingTest, SequencesEqualTheReferenceComputedInBf16) {
  if (!cpu::Cpu().amx_bf16) GTEST_SKIP() << cpu::Cpu().name << " has no AMX";
  RunningServer server("bf16", {"--compute-dtype=bf16", "--modes=tiny,gundam", "--no-warm-up"});
  ASSERT_TRUE(server.ready()) << server.process().Stderr();
  const auto client = server.NewClient("unix");
  for (const SequenceCase& what : {kTinyPage, kGundamWide}) {
    EXPECT_LE(SequenceError(*client, what, client::DType::kBf16), kBf16Bar) << what.file;
  }
}

TEST_F(ServingTest, GeometryTellsTheMosaic) {
  const auto rows = server_->NewClient()->Encode(ReadImage("wide.jpg"), In(client::Mode::kGundam));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->geometry.tile_columns, 6);
  EXPECT_EQ(rows->geometry.tile_rows, 1);
  EXPECT_EQ(rows->geometry.local_rows, 10 * (10 * 6 + 1));
  EXPECT_EQ(rows->geometry.global_rows, 272);
  EXPECT_EQ(rows->rows, rows->geometry.local_rows + 272 + 1);
  EXPECT_EQ(rows->width, 1280);
  EXPECT_GT(rows->timings.compute, 0);
  EXPECT_GE(rows->timings.total, rows->timings.compute);
}

TEST_F(ServingTest, PixelsGiveWhatTheirFileGives) {
  // A grey of one value everywhere: known without a decoder.
  Image raw;
  raw.width = 64;
  raw.height = 48;
  raw.rgb = std::string(size_t{64} * 48 * 3, '\x80');
  const std::string size("\x40\x00\x00\x00\x30\x00\x00\x00", 8);  // 64, 48
  Image bmp;
  bmp.encoded =
      std::string("BM\x36\x24\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00", 18) + size +
      std::string("\x01\x00\x18\x00", 4) + std::string(24, '\0') + raw.rgb;
  const auto client = server_->NewClient();
  const auto from_raw = client->Encode(raw, In(client::Mode::kTiny));
  const auto from_bmp = client->Encode(bmp, In(client::Mode::kTiny));
  ASSERT_TRUE(from_raw.ok()) << from_raw.status();
  ASSERT_TRUE(from_bmp.ok()) << from_bmp.status();
  EXPECT_EQ(from_raw->data, from_bmp->data);
}

// ------------------------------------------------------------------ broken input

struct Format {
  std::string image;  // a good file
  size_t magic;       // bytes that tell its format
};
const std::vector<Format> kFormats = {{"progressive.jpg", 3}, {"palette.png", 8},
                                      {"lossy.webp", 12},     {"a.tiff", 4},
                                      {"a.bmp", 2},           {"anim.gif", 6}};

void ExpectRefused(client::Client& client, Image image, const std::string& what) {
  const auto rows = client.Encode(std::move(image), In(client::Mode::kTiny));
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument)
      << what << ": " << rows.status();
  // A sentence, not a word.
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr(" ")) << what;
  EXPECT_GE(rows.status().message().size(), 15) << what;
}

TEST_F(ServingTest, BrokenFilesAreRefusedWithAReason) {
  const auto client = server_->NewClient();
  std::mt19937 random(7);
  for (const Format& format : kFormats) {
    const std::string good = ReadImage(format.image).encoded;
    ASSERT_GT(good.size(), 64);
    Image image;
    for (const double part : {0.02, 0.1, 0.3}) {
      image.encoded =
          good.substr(0, std::max(format.magic, static_cast<size_t>(part * double(good.size()))));
      ExpectRefused(*client, image, format.image + " cut at " + std::to_string(part));
    }
    image.encoded = good.substr(0, format.magic);
    for (int i = 0; i < 2000; ++i) image.encoded += static_cast<char>(random());
    ExpectRefused(*client, image, "noise that calls itself " + format.image);
    for (const Format& other : kFormats) {
      if (other.image == format.image) continue;
      image.encoded = ReadImage(other.image).encoded;
      image.encoded.replace(0, format.magic, good.substr(0, format.magic));
      ExpectRefused(*client, image, other.image + " that calls itself " + format.image);
    }
  }
  Image image;
  for (int i = 0; i < 4096; ++i) image.encoded += static_cast<char>(random());
  image.encoded[0] = 'x';
  ExpectRefused(*client, image, "noise");
  image.encoded.clear();
  ExpectRefused(*client, image, "empty file");
  image.encoded = FileContents(std::string(DEEPENCODER_TEST_DATA) + "/encoder/mini.json");
  ExpectRefused(*client, image, "a text file");
  ExpectServing();
}

// A PNG's signature and header, whatever follows.
std::string PngHeader(uint32_t width, uint32_t height) {
  std::string ihdr = "IHDR";
  for (const uint32_t side : {width, height}) {
    for (int shift = 24; shift >= 0; shift -= 8) ihdr += static_cast<char>(side >> shift);
  }
  ihdr += std::string("\x08\x02\x00\x00\x00", 5);
  uint32_t crc = ~0U;
  for (const char c : ihdr) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320U : 0);
  }
  crc = ~crc;
  std::string file("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d", 12);
  file += ihdr;
  for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(crc >> shift);
  return file;
}

TEST_F(ServingTest, SizesAtTheLimits) {
  const auto client = server_->NewClient();
  Image image;
  image.encoded = PngHeader(30'000, 30'000);
  auto rows = client->Encode(image, In(client::Mode::kBase));
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr("178956970"));

  image.encoded = std::string((4 << 20) + 1, 'x');
  rows = client->Encode(image, In(client::Mode::kBase));
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr("4194304"));
  image.encoded = std::string(40 << 20, 'x');  // refused by gRPC itself
  rows = client->Encode(image, In(client::Mode::kBase));
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr("--max-image-bytes"));

  image = Image();
  image.width = 65'000;
  image.height = 1;
  image.rgb = std::string(size_t{65'000} * 3, '\x10');
  rows = client->Encode(image, In(client::Mode::kBase));  // the letterbox would have no rows
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(client->Encode(image, In(client::Mode::kTiny)).ok());  // stretched

  rows = client->Encode(ReadImage("one_pixel.png"), In(client::Mode::kBase));
  EXPECT_TRUE(rows.ok()) << rows.status();
  ExpectServing();
}

TEST_F(ServingTest, OneBadPageOfAStreamFailsAlone) {
  std::vector<Image> pages;
  for (const char* name : {"palette.png", "small_page.png", "lossy.webp"}) {
    pages.push_back(ReadImage(name));
  }
  pages[1].encoded.resize(pages[1].encoded.size() / 2);
  size_t next = 0;
  std::map<size_t, absl::StatusOr<client::Embeddings>> results;
  const absl::Status status = server_->NewClient()->EncodeMany(
      [&]() -> std::optional<Image> {
        if (next == pages.size()) return std::nullopt;
        return pages[next++];
      },
      In(client::Mode::kTiny), 2,
      [&](client::ManyResult result) {
        results.emplace(result.index, std::move(result.embeddings));
      });
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_EQ(results.size(), 3);
  EXPECT_EQ(results.at(1).status().code(), absl::StatusCode::kInvalidArgument);
  for (const size_t index : {0, 2}) {
    ASSERT_TRUE(results.at(index).ok()) << results.at(index).status();
    const auto alone = server_->NewClient()->Encode(pages[index], In(client::Mode::kTiny));
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(results.at(index)->data, alone->data);
  }
}

// The answer wakes this thread, which takes the client away from under the thread that brought it. Here
// and not among the client's own tests: a gRPC server in the same process would hide a fault.
TEST_F(ServingTest, ClientMayGoAsSoonAsItHasItsAnswer) {
  for (int i = 0; i < 300; ++i) {
    const auto refused = server_->NewClient()->Encode(Image(), In(client::Mode::kTiny));
    ASSERT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// ------------------------------------------------------------------ what surrounds it

TEST_F(ServingTest, MetricsCountWhatWasDone) {
  // An earlier test's call is counted just after its reply.
  std::map<std::string, double> before;
  ASSERT_TRUE(Eventually([&] {
    before = server_->Metrics();
    return before.at(R"(deepencoder_calls_active{method="EncodeImage"})") == 0;
  }));
  const auto client = server_->NewClient();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client->Encode(ReadImage("palette.png"), In(client::Mode::kSmall)).ok());
  }
  ASSERT_TRUE(client->Encode(ReadImage("wide.jpg"), In(client::Mode::kGundam)).ok());
  ASSERT_FALSE(client->Encode(Image(), In(client::Mode::kTiny)).ok());
  // A call's end is counted just after its reply.
  auto after = server_->Metrics();
  const auto moved = [&](const std::string& name) {
    const std::string full = "deepencoder_" + name;
    EXPECT_TRUE(after.contains(full)) << full;
    return after[full] - before.at(full);
  };
  EXPECT_TRUE(Eventually([&] {
    after = server_->Metrics();
    return moved(R"(requests_total{code="OK",method="EncodeImage"})") == 4 &&
           moved(R"(requests_total{code="INVALID_ARGUMENT",method="EncodeImage"})") == 1;
  }));
  EXPECT_EQ(moved(R"(images_total{mode="small"})"), 3);
  EXPECT_EQ(moved(R"(images_total{mode="gundam"})"), 1);
  EXPECT_EQ(moved("tokens_total"), 3 * 111 + 883);
  EXPECT_EQ(moved(R"(request_duration_seconds_count{method="EncodeImage"})"), 5);
  for (const char* stage : {"decode", "views", "queue", "compute", "assemble"}) {
    EXPECT_EQ(
        moved(std::string("stage_duration_seconds_count{mode=\"small\",stage=\"") + stage + "\"}"),
        3)
        << stage;
  }
  // Every view was in one batch: three small ones, and six tiles with their global view.
  EXPECT_EQ(moved(R"(batch_size_sum{side="640"})"), 3 + 6);
  EXPECT_EQ(moved(R"(batch_size_sum{side="1024"})"), 1);
  EXPECT_EQ(after["deepencoder_in_flight"], 0);
  EXPECT_EQ(after["deepencoder_in_flight_bytes"], 0);
  EXPECT_EQ(after["deepencoder_queue_items"], 0);
  EXPECT_EQ(after["deepencoder_serving"], 1);
  EXPECT_GT(after[R"(deepencoder_device_memory_bytes{device="0",kind="weights"})"], 1e6);
}

TEST_F(ServingTest, InfoSaysWhatIsServed) {
  const auto info = server_->NewClient()->Info();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->model, "deepseek-ocr");
  EXPECT_TRUE(info->synthetic);
  EXPECT_THAT(server_->process().Stderr(), HasSubstr("SYNTHETIC CHECKPOINT"));
  EXPECT_FALSE(info->weights_fingerprint.empty());
  EXPECT_THAT(info->device, testing::StartsWith("cpu: "));
  EXPECT_EQ(info->compute_dtype, client::DType::kFp32);
  EXPECT_EQ(info->embedding_width, 1280);
  EXPECT_EQ(info->max_image_bytes, 4 << 20);
  ASSERT_EQ(info->modes.size(), 5);
  EXPECT_EQ(info->modes[4].name, "gundam");
  EXPECT_EQ(info->modes[4].rows, 273);
}

TEST_F(ServingTest, ReflectionListsTheServices) {
  const auto stub = grpc::reflection::v1alpha::ServerReflection::NewStub(
      grpc::CreateChannel(server_->address("grpc"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->ServerReflectionInfo(&context);
  grpc::reflection::v1alpha::ServerReflectionRequest request;
  request.set_list_services("");
  grpc::reflection::v1alpha::ServerReflectionResponse response;
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) {
    names.push_back(service.name());
  }
  EXPECT_THAT(names,
              testing::IsSupersetOf({"deepencoder.v1.VisionEncoder", "grpc.health.v1.Health"}));
  request.set_file_containing_symbol("deepencoder.v1.VisionEncoder");
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.has_file_descriptor_response());
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// ------------------------------------------------------------------ the client program

TEST_F(ServingTest, ClientEncodesToFiles) {
  const std::string server = "--server=" + server_->address("unix");
  const std::string out = WorkFolder() + "/page.safetensors";
  Outcome run = RunClient({"encode", TestImage("small_page.png"), server, "--mode=tiny",
                           "--dtype=fp32", "--out=" + out});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("fp32 [73, 1280]"));
  EXPECT_THAT(run.out, HasSubstr("no tiles"));
  EXPECT_THAT(run.out, HasSubstr("compute "));
  const auto rows =
      server_->NewClient()->Encode(ReadImage("small_page.png"), In(client::Mode::kTiny));
  ASSERT_TRUE(rows.ok());
  EXPECT_THAT(FileContents(out), testing::EndsWith(rows->data));

  const std::string npy = WorkFolder() + "/page.npy";
  run = RunClient({"encode", TestImage("small_page.png"), server, "--mode=tiny", "--dtype=bf16",
                   "--out=" + npy});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("no bf16"));
  EXPECT_THAT(FileContents(npy), testing::EndsWith(rows->data));

  const std::string folder = WorkFolder() + "/many";
  run = RunClient({"encode", TestImage("small_page.png"), TestImage("palette.png"), server,
                   "--mode=tiny", "--out-dir=" + folder, "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 2);
  EXPECT_THAT(run.out, HasSubstr("\"shape\":[73,1280]"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/small_page.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/palette.safetensors"));
}

// The server writes the rows where the client reads them, each view's when it is done.
TEST_F(ServingTest, SharedMemoryHasTheRowsThatMessagesHave) {
  const std::string written = R"(deepencoder_shared_memory_copied_bytes_total{direction="write"})";
  const auto plain = server_->NewClient("unix"), sharing = server_->NewClient("unix");
  ASSERT_TRUE(sharing->ShareMemory(64 << 20).ok());
  const double before = server_->Metrics().at(written);
  EXPECT_LE(SequenceError(*sharing, kTinyPage, client::DType::kFp32), kFp32Bar);
  EXPECT_LE(SequenceError(*sharing, kGundamWide, client::DType::kFp32), kFp32Bar);
  std::vector<std::thread> callers;
  std::atomic<int64_t> bytes{0};
  for (const SequenceCase& what : {kTinyPage, kGundamWide, kTinyPage, kGundamWide}) {
    callers.emplace_back([&, what] {
      const auto want = plain->Encode(ReadImage(what.image), In(what.mode));
      const auto got = sharing->Encode(ReadImage(what.image), In(what.mode));
      ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
      EXPECT_EQ(got->data, want->data);
      bytes += static_cast<int64_t>(got->data.size());
    });
  }
  for (std::thread& caller : callers) caller.join();
  const double fp32_bytes = 4.0 * 1280 * (73 + 10 * (10 * 6 + 1) + 272 + 1);
  EXPECT_EQ(server_->Metrics().at(written) - before, fp32_bytes + static_cast<double>(bytes));
}

TEST_F(ServingTest, LoadGoesThroughSharedMemory) {
  const std::string copied = R"(deepencoder_shared_memory_copied_bytes_total{direction="write"})";
  const double before = server_->Metrics().at(copied);
  const Outcome run = RunClient({"bench", TestImage("palette.png"), "--mode=tiny", "--count=3",
                                 "--concurrency=1", "--warmup=0", "--shared-memory=8", "--json=-",
                                 "--server=" + server_->address("unix")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("shared memory"));
  EXPECT_EQ(server_->Metrics().at(copied) - before, 3 * 73 * 1280 * 2);  // bf16
}

TEST_F(ServingTest, ClientsExitStatusTellsScripts) {
  const std::string server = "--server=" + server_->address("grpc");
  const std::string good = TestImage("palette.png");
  const std::string bad = std::string(DEEPENCODER_TEST_DATA) + "/encoder/mini.json";
  Outcome run = RunClient({"encode", good, bad, "/no/such/file", server, "--mode=tiny"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("mini.json: INVALID_ARGUMENT: "));
  EXPECT_THAT(run.err, HasSubstr("/no/such/file: NOT_FOUND"));
  EXPECT_THAT(run.out, HasSubstr("[73, 1280]"));

  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"encode"},
                                                {"encode", good, "--mode=huge"},
                                                {"encode", good, "--x"},
                                                {"encode", good, good, "--out=x.npy"},
                                                {"encode", good, "--out=x.txt"},
                                                {"encode", good, "--max-tiles=33"},
                                                {"encode", good, server, "--request-id=\xC3\xA4"},
                                                {"encode", good, good, server, "--traceparent=\n"},
                                                {"info", "word"},
                                                {"nonsense"},
                                                {}}) {
    run = RunClient(wrong);
    EXPECT_EQ(run.status, 2) << testing::PrintToString(wrong);
    EXPECT_FALSE(run.err.empty());
  }
  for (const std::vector<std::string>& help : {std::vector<std::string>{"--help"},
                                               {"encode", "--help"},
                                               {"info", "--help"},
                                               {"health", "--help"}}) {
    run = RunClient(help);
    EXPECT_EQ(run.status, 0);
    EXPECT_THAT(run.out, HasSubstr("deepencoder"));
  }
  const std::string nobody = "--server=unix:" + WorkFolder() + "/nobody.sock";
  for (const std::vector<std::string>& unreachable :
       {std::vector<std::string>{"encode", good, nobody, "--connect-timeout=100ms"},
        {"info", nobody, "--timeout=1m"},  // whose error is the connection's
        {"health", nobody, "--timeout=100ms"}}) {
    run = RunClient(unreachable);
    EXPECT_EQ(run.status, 3) << testing::PrintToString(unreachable);
    EXPECT_THAT(run.err, HasSubstr("nobody.sock"));
  }
  // Not the server's fault.
  run = RunClient({"encode", good, server, "--mode=tiny", "--out=/no/such/folder/a.npy"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("No such file or directory"));
  run =
      RunProgram("/bin/sh", {"-c", std::string(DEEPENCODER_CLIENT_PROGRAM) + " --help > /dev/full"},
                 WorkFolder() + "/full");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("No space left on device"));
  run = RunClient({"health", server});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "SERVING\n");
  run = RunClient({"info", server});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("SYNTHETIC"));
  EXPECT_THAT(run.out, HasSubstr("gundam"));
  run = RunClient({"info", server, "--json"});
  EXPECT_THAT(run.out, HasSubstr("\"synthetic\":true"));
}

}  // namespace
}  // namespace deepencoder
