// The CPU backend through the interface that serving uses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "conformance.h"
#include "encoder/backend/backend.h"
#include "encoder/model/assemble.h"
#include "encoder/model/config.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

// One thread: ThreadSanitizer cannot see the synchronisation inside OpenMP's library.
BackendOptions Options(DType type) {
  return {.compute = type, .sides = {512, 640}, .batch_buckets = {1, 2, 4, 16}, .threads = 1};
}

Backend& BackendOf(DType type) {
  static std::map<DType, std::unique_ptr<Backend>> backends;
  std::unique_ptr<Backend>& backend = backends[type];
  if (backend == nullptr) {
    absl::StatusOr<std::unique_ptr<Backend>> made =
        CreateCpuBackend(MiniCheckpoint(), Options(type));
    EXPECT_TRUE(made.ok()) << made.status();
    backend = *std::move(made);
  }
  return *backend;
}

std::shared_ptr<const ViewSet> ViewsOf(Backend& backend, const RgbImage& image, Mode mode) {
  const absl::StatusOr<ViewPlan> plan =
      PlanViews(image.width(), image.height(), mode, kDefaultMaxTiles);
  EXPECT_TRUE(plan.ok()) << plan.status();
  absl::StatusOr<std::shared_ptr<const ViewSet>> views = backend.MakeViews(image, *plan);
  EXPECT_TRUE(views.ok()) << views.status();
  return *std::move(views);
}

RgbImage Noise(int side, uint32_t seed) {
  cv::Mat pixels(side, side, CV_8UC3);
  for (uint8_t *at = pixels.data, *end = at + pixels.total() * 3; at != end; ++at) {
    seed = seed * 1664525u + 1013904223u;
    *at = static_cast<uint8_t>(seed >> 24);
  }
  return RgbImage(pixels);
}

size_t RowBytes(DType type) { return kEmbeddingWidth * SizeOf(type); }

// The rows of `items` views of tiny mode, one after another.
std::vector<std::byte> EncodeTiny(EncoderSlot& slot,
                                  const std::vector<std::shared_ptr<const ViewSet>>& views,
                                  DType type) {
  const int lines = OutputGridOf(512);
  const size_t view_bytes = lines * lines * RowBytes(type);
  std::vector<std::byte> rows(views.size() * view_bytes);
  std::vector<EncodeItem> items;
  for (size_t i = 0; i < views.size(); ++i) {
    items.push_back(
        {views[i].get(), 0, type, rows.data() + i * view_bytes, lines * RowBytes(type)});
  }
  EncodeStats stats;
  const absl::Status status = slot.Encode(512, items, &stats);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(stats.bucket, static_cast<int>(views.size()));
  EXPECT_GT(stats.compute_seconds, 0.0);
  return rows;
}

class CpuBackendTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (GetParam() == DType::kBf16 && !cpu::Cpu().amx_bf16)
      GTEST_SKIP() << cpu::Cpu().name << " has no AMX";
  }
};

TEST_P(CpuBackendTest, SaysWhatItIs) {
  const BackendInfo& info = BackendOf(GetParam()).info();
  EXPECT_EQ(info.kind, "cpu");
  EXPECT_EQ(info.compute, GetParam());
  EXPECT_THAT(info.device_name, HasSubstr(cpu::Cpu().name));
  EXPECT_THAT(info.sides, testing::ElementsAre(512, 640));
}

// A reply as serving assembles it: lines with gaps for image_newline, markers in them.
TEST_P(CpuBackendTest, SequenceOfAnImageFile) {
  Backend& backend = BackendOf(GetParam());
  const RgbImage image = ReadImage(DEEPENCODER_TEST_DATA "/images/small_page.png");
  const std::shared_ptr<const ViewSet> views = ViewsOf(backend, image, Mode::kTiny);
  const SequenceLayout layout = LayoutOf(Mode::kTiny, {});
  std::vector<float> sequence(static_cast<size_t>(layout.rows) * kEmbeddingWidth);
  auto* bytes = reinterpret_cast<std::byte*>(sequence.data());
  const size_t row_bytes = RowBytes(DType::kFp32);
  const ViewRows& rows = layout.views[0];
  const EncodeItem item = {views.get(), 0, DType::kFp32, bytes + rows.first_row * row_bytes,
                           rows.line_stride * row_bytes};
  absl::StatusOr<std::unique_ptr<EncoderSlot>> slot = backend.CreateSlot();
  ASSERT_TRUE(slot.ok()) << slot.status();
  ASSERT_TRUE((*slot)->Encode(512, std::span(&item, 1), nullptr).ok());
  FillMarkerRows(layout, MiniCheckpoint().GetFloats("model.image_newline").data(),
                 MiniCheckpoint().GetFloats("model.view_seperator").data(), DType::kFp32, bytes);

  // The reference is stored in fp16.
  for (float& value : sequence) value = RoundTo(DType::kFp16, value);
  const double error = RelativeError(
      sequence,
      ReadTensor(ConformanceData() + "/mini.sequence.tiny.small_page.safetensors", "sequence"));
  EXPECT_LE(error, GetParam() == DType::kFp32 ? 5e-5 : 1.25e-2);
}

TEST_P(CpuBackendTest, RowsDoNotDependOnCompany) {
  Backend& backend = BackendOf(GetParam());
  absl::StatusOr<std::unique_ptr<EncoderSlot>> slot = backend.CreateSlot();
  ASSERT_TRUE(slot.ok()) << slot.status();
  std::vector<std::shared_ptr<const ViewSet>> views;
  for (uint32_t seed = 1; seed <= 3; ++seed)
    views.push_back(ViewsOf(backend, Noise(512, seed), Mode::kTiny));
  const std::vector<std::byte> alone = EncodeTiny(**slot, {views[2]}, DType::kFp32);

  // Ten, which is more than pass through CLIP together.
  std::vector<std::shared_ptr<const ViewSet>> company;
  company.reserve(10);
  for (int i = 0; i < 9; ++i) company.push_back(views[i % 2]);
  company.push_back(views[2]);
  const std::vector<std::byte> together = EncodeTiny(**slot, company, DType::kFp32);
  const size_t view_bytes = alone.size();
  EXPECT_EQ(std::memcmp(together.data() + 9 * view_bytes, alone.data(), view_bytes), 0);
  EXPECT_EQ(std::memcmp(together.data(), together.data() + 2 * view_bytes, view_bytes), 0);
  EXPECT_NE(std::memcmp(together.data(), together.data() + view_bytes, view_bytes), 0);
  EXPECT_EQ(EncodeTiny(**slot, {views[2]}, DType::kFp32), alone);  // and not on what ran before
}

TEST_P(CpuBackendTest, RepliesInEveryType) {
  Backend& backend = BackendOf(GetParam());
  absl::StatusOr<std::unique_ptr<EncoderSlot>> slot = backend.CreateSlot();
  ASSERT_TRUE(slot.ok()) << slot.status();
  const std::vector<std::shared_ptr<const ViewSet>> views = {
      ViewsOf(backend, Noise(512, 5), Mode::kTiny)};
  const std::vector<std::byte> floats = EncodeTiny(**slot, views, DType::kFp32);
  for (const DType type : {DType::kBf16, DType::kFp16}) {
    std::vector<std::byte> converted(floats.size() / 2);
    Convert(reinterpret_cast<const float*>(floats.data()), type, converted.data(),
            converted.size() / 2);
    EXPECT_EQ(EncodeTiny(**slot, views, type), converted) << Name(type);
  }
}

TEST_P(CpuBackendTest, SlotsRunAtTheSameTime) {
  Backend& backend = BackendOf(GetParam());
  const std::vector<std::shared_ptr<const ViewSet>> views = {
      ViewsOf(backend, Noise(512, 5), Mode::kTiny)};
  std::vector<std::byte> results[2];
  std::vector<std::thread> threads;
  for (std::vector<std::byte>& result : results) {
    threads.emplace_back([&] {
      absl::StatusOr<std::unique_ptr<EncoderSlot>> slot = backend.CreateSlot();
      ASSERT_TRUE(slot.ok()) << slot.status();
      for (int i = 0; i < 3; ++i) result = EncodeTiny(**slot, views, DType::kFp32);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(CpuBackendTest, CountsMemory) {
  Backend& backend = BackendOf(GetParam());
  const auto use = [&](const std::string& kind) {
    for (const MemoryUse& memory : backend.Memory()) {
      if (memory.kind == kind) return memory;
    }
    ADD_FAILURE() << kind;
    return MemoryUse{};
  };
  const size_t views_before = use("views").current, workspace_before = use("workspace").current;
  {
    const std::shared_ptr<const ViewSet> views = ViewsOf(backend, Noise(512, 1), Mode::kTiny);
    const absl::StatusOr<std::unique_ptr<EncoderSlot>> slot = backend.CreateSlot();
    EXPECT_EQ(views->bytes(), size_t{512} * 512 * 3);
    EXPECT_EQ(use("views").current, views_before + views->bytes());
    EXPECT_GT(use("workspace").current, workspace_before);
  }
  EXPECT_EQ(use("views").current, views_before);
  EXPECT_EQ(use("workspace").current, workspace_before);
  EXPECT_GE(use("views").peak, views_before + size_t{512} * 512 * 3);
  EXPECT_GT(use("weights").current, size_t{50'000'000} * SizeOf(GetParam()));
}

TEST_P(CpuBackendTest, RefusesBatchesItCannotEncode) {
  Backend& backend = BackendOf(GetParam());
  absl::StatusOr<std::unique_ptr<EncoderSlot>> slot = backend.CreateSlot();
  ASSERT_TRUE(slot.ok()) << slot.status();
  const std::shared_ptr<const ViewSet> views = ViewsOf(backend, Noise(512, 1), Mode::kTiny);
  std::vector<std::byte> rows(64 * RowBytes(DType::kFp32));
  const EncodeItem item = {views.get(), 0, DType::kFp32, rows.data(), 8 * RowBytes(DType::kFp32)};
  const auto refusal = [&](int side, const std::vector<EncodeItem>& items) {
    const absl::Status status = (*slot)->Encode(side, items, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return status.ToString();
  };
  EXPECT_THAT(refusal(1024, {item}), HasSubstr("1024"));
  EXPECT_THAT(refusal(640, {item}), HasSubstr("512"));
  EXPECT_THAT(refusal(512, {}), HasSubstr("1 to 16"));
  EXPECT_THAT(refusal(512, std::vector<EncodeItem>(17, item)), HasSubstr("17"));
  EncodeItem outside = item;
  outside.view = 1;
  EXPECT_THAT(refusal(512, {outside}), HasSubstr("not a view"));
}

std::string TypeName(const testing::TestParamInfo<DType>& instance) {
  return std::string(Name(instance.param));
}

INSTANTIATE_TEST_SUITE_P(Types, CpuBackendTest, testing::Values(DType::kFp32, DType::kBf16),
                         TypeName);

TEST(CreateCpuBackend, RefusesWhatItCannotBe) {
  const auto refusal = [](const BackendOptions& options) {
    const absl::StatusOr<std::unique_ptr<Backend>> backend =
        CreateCpuBackend(MiniCheckpoint(), options);
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument);
    return backend.status().ToString();
  };
  BackendOptions options = Options(DType::kFp16);
  EXPECT_THAT(refusal(options), HasSubstr("fp16"));
  options = Options(DType::kFp32);
  options.sides = {500};
  EXPECT_THAT(refusal(options), HasSubstr("500"));
  options.sides = {};
  EXPECT_THAT(refusal(options), HasSubstr("side"));
  options = Options(DType::kFp32);
  options.threads = -1;
  EXPECT_THAT(refusal(options), HasSubstr("-1"));
  options = Options(DType::kFp32);
  options.batch_buckets = {4, 1};
  EXPECT_THAT(refusal(options), HasSubstr("ascending"));
  if (!cpu::Cpu().amx_bf16) {
    EXPECT_THAT(refusal(Options(DType::kBf16)), HasSubstr("AMX"));
  }
}

TEST(BestCpuType, IsBf16WhereAmxIs) {
  EXPECT_EQ(BestCpuType(), cpu::Cpu().amx_bf16 ? DType::kBf16 : DType::kFp32);
}

}  // namespace
}  // namespace deepencoder
