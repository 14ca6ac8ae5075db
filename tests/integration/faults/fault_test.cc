// Devices that fail, hang and lie under the real server.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/integration/faults/fault_fixture.h"

namespace deepencoder {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

const char* const kAll[] = {"small_page.png", "palette.png", "one_pixel.png"};

// Not more than every third call, so that no slot fails often enough in a row to be given up.
TEST_F(FaultTest, AFaultOfEachKindFailsItsImagesAlone) {
  Start({"--batch-buckets=1,2"});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  for (const char* image : kAll) RowsOf(image);
  const std::pair<std::string, StatusCode> kinds[] = {
      {"encode error", StatusCode::kInternal},
      {"encode memory", StatusCode::kResourceExhausted},
      {"encode throw", StatusCode::kResourceExhausted},
      {"rows error", StatusCode::kInternal},
      {"rows nan", StatusCode::kInternal},
      {"views error", StatusCode::kInternal},
      {"views memory", StatusCode::kResourceExhausted},
      {"views throw", StatusCode::kResourceExhausted},
  };
  for (const auto& [rule, code] : kinds) {
    SetRules(rule + " every=3");
    auto codes = Burst(24);
    EXPECT_GT(codes[code], 0) << rule;
    EXPECT_GT(codes[StatusCode::kOk], 0) << rule;
    EXPECT_EQ(codes[code] + codes[StatusCode::kOk], 24) << rule;
    EXPECT_TRUE(Serving()) << rule;
  }
  SetRules("");
  EXPECT_EQ(Burst(12)[StatusCode::kOk], 12);
  SetRules("encode slow ms=50\nviews slow ms=20");
  EXPECT_EQ(Burst(12)[StatusCode::kOk], 12);
  ExpectNothingIsLeft();
  server().process().Signal(SIGTERM);
  EXPECT_EQ(server().process().Wait(), 0) << server().process().Stderr();
}

TEST_F(FaultTest, ADeadSlotIsToldByHealth) {
  Start({});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  for (const char* image : kAll) RowsOf(image);
  ASSERT_TRUE(Serving());
  SetRules("encode error\nslot error");
  EXPECT_EQ(Encode(kAll[0]).status().code(), StatusCode::kInternal);
  EXPECT_TRUE(Eventually([&] { return !Serving(); }));
  EXPECT_TRUE(Eventually([&] { return server().Metrics()["deepencoder_serving"] == 0; }));
  EXPECT_EQ(Encode(kAll[0]).status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(server().process().Stderr(), HasSubstr("cannot be rebuilt"));
  ExpectNothingIsLeft();
  server().process().Signal(SIGTERM);
  EXPECT_EQ(server().process().Wait(), 0);
}

TEST_F(FaultTest, ADeviceThatMakesNoNumbersIsToldByHealth) {
  Start({});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  RowsOf(kAll[0]);
  SetRules("rows nan");
  while (Serving()) {
    const StatusCode code = Encode(kAll[0]).status().code();
    ASSERT_TRUE(code == StatusCode::kInternal || code == StatusCode::kUnavailable);
  }
  ExpectNothingIsLeft();
}

TEST_F(FaultTest, AStuckKernelFailsItsImagesInTimeAndMayComeBack) {
  Start({"--device-timeout=8s"});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  for (const char* image : kAll) RowsOf(image);
  SetRules("encode hang");
  auto codes = Burst(6);
  EXPECT_EQ(codes[StatusCode::kOk], 0);
  EXPECT_GT(codes[StatusCode::kInternal], 0);  // what was in the batch; the rest is UNAVAILABLE
  EXPECT_EQ(codes[StatusCode::kInternal] + codes[StatusCode::kUnavailable], 6);
  EXPECT_TRUE(Eventually([&] { return !Serving(); }));
  EXPECT_EQ(Encode(kAll[0]).status().code(), StatusCode::kUnavailable);
  SetRules("");
  EXPECT_TRUE(Eventually([&] { return Serving(); }));
  EXPECT_EQ(Burst(6)[StatusCode::kOk], 6);

  SetRules("views hang");
  codes = Burst(6);
  EXPECT_EQ(codes[StatusCode::kOk], 0);
  EXPECT_TRUE(Eventually([&] { return !Serving(); }));
  SetRules("");
  EXPECT_TRUE(Eventually([&] { return Serving(); }));
  EXPECT_EQ(Burst(6)[StatusCode::kOk], 6);
  ExpectNothingIsLeft();
}

// A call that goes on after its image has failed writes where nobody looks any more.
TEST_F(FaultTest, MemoryOfAClientThatAStuckKernelMayWriteIsGivenUp) {
  const char* const written = R"(deepencoder_shared_memory_copied_bytes_total{direction="write"})";
  Start({"--device-timeout=8s", "--shared-memory", "--modes=tiny", "--cache-bytes=0"});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  const auto sharing = server().NewClient("unix");
  ASSERT_TRUE(sharing->ShareMemory(4 << 20).ok());
  const auto encode = [&] { return sharing->Encode(ReadImage(kAll[0]), Tiny()); };
  const auto expected = encode();
  ASSERT_TRUE(expected.ok()) << expected.status();
  const std::string rows(expected->data);
  EXPECT_EQ(server().Metrics()[written], static_cast<double>(rows.size()));

  SetRules("encode hang");
  EXPECT_EQ(encode().status().code(), StatusCode::kInternal);
  EXPECT_TRUE(Eventually([&] { return !Serving(); }));  // not what health says from before
  SetRules("");
  EXPECT_TRUE(Eventually([&] { return Serving(); }));
  // The first finds its region gone and goes through the socket, while the client makes another.
  EXPECT_TRUE(Eventually([&] {
    const auto again = encode();
    EXPECT_TRUE(again.ok() && again->data == rows) << again.status();
    return server().Metrics()[written] > static_cast<double>(rows.size());
  }));
  EXPECT_EQ(expected->data, rows);
  EXPECT_TRUE(sharing->Encode(ReadImage(kAll[1]), Tiny()).ok());
}

// Neither can the call be ended nor its thread: the process ends all the same.
TEST_F(FaultTest, ACallThatNeverReturnsDoesNotKeepTheServer) {
  Start({"--device-timeout=1s", "--drain-timeout=1s"});
  ASSERT_TRUE(server().ready()) << server().process().Stderr();
  SetRules("encode hang");
  EXPECT_EQ(Encode(kAll[0]).status().code(), StatusCode::kInternal);
  server().process().Signal(SIGTERM);
  EXPECT_EQ(server().process().Wait(), 1);
  EXPECT_THAT(server().process().Stderr(), HasSubstr("exiting without it"));
}

TEST_F(FaultTest, WhatFailsAtTheStartIsSaid) {
  for (const auto& [rules, text] : std::map<std::string, std::string>{
           {"backend error", "injected fault: backend"},
           {"backend memory", "injected lack of memory: backend"},
           {"backend throw", "memory"},
           {"slot error", "injected fault: slot"},
           {"slot memory", "injected lack of memory: slot"},
           {"slot throw", "memory"},
           {"thread fail", "threads"},
       }) {
    Start({}, rules);
    EXPECT_FALSE(server().ready()) << rules;
    EXPECT_EQ(server().process().Wait(), 1) << rules << "\n" << server().process().Stderr();
    EXPECT_THAT(server().process().Stderr(), HasSubstr("cannot start")) << rules;
    EXPECT_THAT(server().process().Stderr(), HasSubstr(text)) << rules;
  }
  // Short of memory for the largest batch alone: a smaller one will do.
  Start({"--batch-buckets=1,2,4"}, "slot memory count=1");
  EXPECT_TRUE(server().ready());
  EXPECT_THAT(server().process().Stderr(), HasSubstr("memory is short"));
}

TEST(FaultInjectionTest, IsNotInTheServerThatIsInstalled) {
  EXPECT_EQ(FileContents(DEEPENCODER_SERVER_PROGRAM).find("FAULT_RULES_FILE"), std::string::npos);
  EXPECT_NE(FileContents(DEEPENCODER_FAULTY_SERVER_PROGRAM).find("FAULT_RULES_FILE"),
            std::string::npos);
}

}  // namespace
}  // namespace deepencoder
