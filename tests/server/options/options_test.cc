#include "server/options.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "server/values.h"

namespace deepencoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<Command> Parse(const std::vector<const char*>& args,
                              const std::map<std::string, std::string>& environment = {}) {
  return ParseCommandLine(args, [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string ErrorOf(const std::vector<const char*>& args,
                    const std::map<std::string, std::string>& environment = {}) {
  const auto command = Parse(args, environment);
  EXPECT_FALSE(command.ok());
  return std::string(command.status().message());
}

TEST(OptionsTest, Defaults) {
  const ServerOptions options = DefaultOptions();
  EXPECT_THAT(options.listen, ElementsAre("127.0.0.1:50051"));
  EXPECT_EQ(options.metrics_listen, "127.0.0.1:9095");
  EXPECT_EQ(options.modes.size(), 5);
  EXPECT_EQ(options.max_tiles, 6);
  EXPECT_EQ(options.device, DeviceChoice::kAuto);
  EXPECT_TRUE(options.devices.empty());
  EXPECT_EQ(options.compute_dtype, std::nullopt);
  EXPECT_THAT(options.batch_buckets, ElementsAre(1, 2, 4, 8, 16, 32));
  EXPECT_EQ(options.max_batch_delay, absl::ZeroDuration());
  EXPECT_EQ(options.max_image_bytes, 32 << 20);
  EXPECT_EQ(options.max_image_pixels, 178'956'970);
  EXPECT_EQ(options.max_bytes_in_flight, int64_t{4} << 30);
  EXPECT_EQ(options.drain_timeout, absl::Seconds(30));
  EXPECT_EQ(options.stream_window, 64);
  EXPECT_EQ(options.cache_bytes, 0);
  EXPECT_TRUE(options.graphs);
  EXPECT_FALSE(options.reflection);
  EXPECT_TRUE(options.warm_up);
  EXPECT_EQ(options.log_level, LogLevel::kInfo);
  EXPECT_EQ(options.log_format, LogFormat::kText);
}

TEST(OptionsTest, AdminIsServedOnThisMachineOnlyUnlessGuarded) {
  for (const std::string address :
       {"unix:/run/admin", "127.0.0.1:0", "127.1.2.3:50052", "localhost:50052", "[::1]:50052"}) {
    EXPECT_TRUE(Parse({"--model=/m", ("--admin-listen=" + address).c_str()}).ok()) << address;
  }
  for (const std::string address :
       {"0.0.0.0:50052", "[::]:50052", "10.0.0.1:50052", "host:50052", "127.evil.example:50052",
        "127.0.0.1.example:50052", ":50052"}) {
    EXPECT_THAT(ErrorOf({"--model=/m", ("--admin-listen=" + address).c_str()}),
                HasSubstr("--admin-listen: '" + address + "' can be reached from other machines"));
  }
  const auto error = [](std::vector<const char*> more) {
    more.insert(more.begin(), {"--model=/m", "--admin-listen=0.0.0.0:50052"});
    return ErrorOf(more);
  };
  EXPECT_THAT(error({}), HasSubstr("needs --admin-token-file, --tls-cert and --tls-key"));
  EXPECT_THAT(error({"--admin-token-file=a"}), HasSubstr("needs --tls-cert and --tls-key"));
  EXPECT_THAT(error({"--tls-cert=c", "--tls-key=k"}), HasSubstr("needs --admin-token-file:"));
  // A caller's credentials are none of an operator's.
  EXPECT_THAT(error({"--tls-cert=c", "--tls-key=k", "--tls-client-ca=d", "--token-file=t"}),
              HasSubstr("needs --admin-token-file:"));
  EXPECT_THAT(error({"--tls-cert=c", "--tls-key=k", "--token-file=t", "--admin-token-file=t"}),
              HasSubstr("must differ"));
  EXPECT_THAT(ErrorOf({"--model=/m", "--admin-token-file=a"}), HasSubstr("needs --admin-listen"));
  EXPECT_TRUE(Parse({"--model=/m", "--admin-listen=0.0.0.0:50052", "--tls-cert=c", "--tls-key=k",
                     "--admin-token-file=a"})
                  .ok());
}

TEST(OptionsTest, FlagsInBothForms) {
  const auto command = Parse({"--model=/m", "--listen", "0.0.0.0:1, unix:/run/s", "--no-graphs",
                              "--reflection=on", "--devices=1,0", "--compute-dtype", "fp32",
                              "--max-batch-delay=2ms", "--log-format=json", "--alpha=white",
                              "--modes=base", "--batch-buckets=1,4", "--grpc-memory=64MiB"});
  ASSERT_TRUE(command.ok()) << command.status();
  const ServerOptions& options = command->options;
  EXPECT_EQ(options.model, "/m");
  EXPECT_THAT(options.listen, ElementsAre("0.0.0.0:1", "unix:/run/s"));
  EXPECT_FALSE(options.graphs);
  EXPECT_TRUE(options.reflection);
  EXPECT_THAT(options.devices, ElementsAre(1, 0));
  EXPECT_EQ(options.compute_dtype, DType::kFp32);
  EXPECT_EQ(options.max_batch_delay, absl::Milliseconds(2));
  EXPECT_EQ(options.log_format, LogFormat::kJson);
  EXPECT_EQ(options.alpha, AlphaPolicy::kWhite);
  EXPECT_THAT(options.modes, ElementsAre(Mode::kBase));
  EXPECT_EQ(options.grpc_memory, 64 << 20);
}

TEST(OptionsTest, FlagWinsOverEnvironmentOverDefault) {
  const std::map<std::string, std::string> environment = {{"DEEPENCODER_MODEL", "/from/env"},
                                                          {"DEEPENCODER_SLOTS", "3"},
                                                          {"DEEPENCODER_THREADS", "5"},
                                                          {"DEEPENCODER_METRICS_LISTEN", ""}};
  const auto command = Parse({"--slots=4"}, environment);
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->options.model, "/from/env");
  EXPECT_EQ(command->options.slots, 4);
  EXPECT_EQ(command->options.threads, 5);
  EXPECT_EQ(command->options.metrics_listen, "");
}

TEST(OptionsTest, ErrorsNameTheFlagTheValueAndWhatIsExpected) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("--model=DIR is required"));
  EXPECT_THAT(ErrorOf({"--vesion"}), HasSubstr("did you mean --version?"));
  EXPECT_THAT(ErrorOf({"--max-tile=6"}), HasSubstr("did you mean --max-tiles?"));
  EXPECT_EQ(ErrorOf({"--completely-else"}),
            "unknown flag --completely-else; --help lists the flags");
  EXPECT_THAT(ErrorOf({"model"}), HasSubstr("unexpected argument 'model'"));
  EXPECT_THAT(ErrorOf({"--"}), HasSubstr("unexpected argument"));
  EXPECT_THAT(ErrorOf({"--model"}), HasSubstr("--model needs a value: DIR"));
  EXPECT_THAT(ErrorOf({"--max-tiles=3"}),
              HasSubstr("--max-tiles: '3' is out of range: expected 4"));
  EXPECT_THAT(ErrorOf({"--device=tpu"}), HasSubstr("auto, cpu, cuda"));
  EXPECT_THAT(ErrorOf({"--batch-buckets=4,2"}), HasSubstr("ascend"));
  EXPECT_THAT(ErrorOf({"--batch-buckets="}), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf({"--modes=base,huge"}), HasSubstr("'huge' is not one of: tiny"));
  EXPECT_THAT(ErrorOf({"--devices=0,0"}), HasSubstr("twice"));
  EXPECT_THAT(ErrorOf({"--listen="}), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf({"--graphs=maybe"}), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf({"--no-model"}), HasSubstr("unknown flag"));
  EXPECT_THAT(ErrorOf({"--model=/m"}, {{"DEEPENCODER_SLOTS", "x"}}),
              HasSubstr("environment variable DEEPENCODER_SLOTS: 'x'"));
}

TEST(OptionsTest, ActionsNeedNoModel) {
  EXPECT_EQ(Parse({"--help"})->action, Command::Action::kHelp);
  EXPECT_EQ(Parse({"-h"})->action, Command::Action::kHelp);
  EXPECT_EQ(Parse({"--version"})->action, Command::Action::kVersion);
  EXPECT_EQ(Parse({"--dump-metrics-docs"})->action, Command::Action::kMetricsDocs);
  EXPECT_EQ(Parse({"--dump-options-docs"})->action, Command::Action::kOptionsDocs);
}

// What --help says is what is parsed: every flag in it, with its default, is accepted.
TEST(OptionsTest, HelpNamesEveryFlagWithItsVariable) {
  const std::string help = HelpText();
  std::set<std::string> variables;
  for (size_t at = 0; (at = help.find("[DEEPENCODER_", at)) != std::string::npos; ++at) {
    variables.insert(help.substr(at + 1, help.find(']', at) - at - 1));
  }
  EXPECT_GE(variables.size(), 30);
  EXPECT_TRUE(variables.contains("DEEPENCODER_MAX_BATCH_DELAY"));
  for (const std::string& variable : variables) {
    EXPECT_THAT(OptionsMarkdown(), HasSubstr("`" + variable + "`"));
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100) << line;
}

TEST(OptionsTest, SidesOfModes) {
  EXPECT_THAT(SidesOf(std::vector<Mode>{Mode::kGundam}), ElementsAre(640, 1024));
  EXPECT_THAT(SidesOf(std::vector<Mode>{Mode::kLarge, Mode::kTiny}), ElementsAre(512, 1280));
  EXPECT_THAT(SidesOf(DefaultOptions().modes), ElementsAre(512, 640, 1024, 1280));
}

TEST(ValuesTest, Bytes) {
  const auto parse = [](const char* text) { return ParseBytes(text, 0, INT64_MAX); };
  EXPECT_EQ(*parse("0"), 0);
  EXPECT_EQ(*parse("123"), 123);
  EXPECT_EQ(*parse("123B"), 123);
  EXPECT_EQ(*parse("2KiB"), 2048);
  EXPECT_EQ(*parse("3GiB"), int64_t{3} << 30);
  for (const char* bad : {"", "-1", "1.5MiB", "1MB", "MiB", "9999999999GiB", "1 MiB", "0x10"}) {
    EXPECT_FALSE(parse(bad).ok()) << bad;
  }
  EXPECT_THAT(std::string(ParseBytes("5", 10, 1 << 20).status().message()),
              HasSubstr("expected 10 bytes to 1 MiB"));
}

TEST(ValuesTest, Shares) {
  EXPECT_EQ(*ParseShare("0"), 0);
  EXPECT_EQ(*ParseShare("0.25"), 0.25);
  EXPECT_EQ(*ParseShare("1"), 1);
  for (const char* wrong : {"", "-0.1", "1.01", "nan", "inf", "50%", "0.5 "}) {
    EXPECT_EQ(ParseShare(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(ValuesTest, Durations) {
  const auto parse = [](const char* text) {
    return ParseDuration(text, absl::ZeroDuration(), absl::Hours(24));
  };
  EXPECT_EQ(*parse("0"), absl::ZeroDuration());
  EXPECT_EQ(*parse("250us"), absl::Microseconds(250));
  EXPECT_EQ(*parse("1.5ms"), absl::Microseconds(1500));
  EXPECT_EQ(*parse("2m"), absl::Minutes(2));
  EXPECT_EQ(*parse("24h"), absl::Hours(24));
  for (const char* bad : {"", "5", "ms", "-1s", "25h", "infs", "nans", "1e999s", "1 s"}) {
    EXPECT_FALSE(parse(bad).ok()) << bad;
  }
}

TEST(ValuesTest, ListsAndIntegers) {
  EXPECT_THAT(*ParseList(" a , b"), ElementsAre("a", "b"));
  EXPECT_TRUE(ParseList("")->empty());
  EXPECT_FALSE(ParseList("a,,b").ok());
  EXPECT_FALSE(ParseList("a,").ok());
  EXPECT_EQ(*ParseInteger("-5", -10, 10), -5);
  for (const char* bad : {"", "1x", "11", "99999999999999999999", "+1"}) {
    EXPECT_FALSE(ParseInteger(bad, -10, 10).ok()) << bad;
  }
}

}  // namespace
}  // namespace deepencoder
