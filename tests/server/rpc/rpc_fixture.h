// The whole RPC layer around a PuppetEngine, and a stub that talks to it over a real socket.
#pragma once

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "server/engine/clock.h"
#include "server/log.h"
#include "server/metrics/metrics.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/health_service.h"
#include "server/rpc/request_limit.h"
#include "server/rpc/shared_memory_service.h"
#include "server/rpc/vision_encoder_service.h"
#include "server/shared_memory/region_table.h"
#include "tests/call_with_bytes.h"
#include "tests/server/rpc/puppet_engine.h"

namespace deepencoder {

inline RpcContext TestContext(Metrics* metrics, const Logger* logger, int stream_window,
                              const Tracer* tracer = nullptr) {
  RpcContext context;
  context.rules.modes = {Mode::kTiny, Mode::kSmall, Mode::kBase, Mode::kGundam};  // not large
  context.rules.max_tiles = 9;
  context.rules.alpha = AlphaPolicy::kWhite;
  context.rules.max_image_bytes = 1 << 20;
  context.max_image_pixels = 1000;
  context.stream_window = stream_window;
  context.observer = metrics;
  context.logger = logger;
  context.tracer = tracer;
  return context;
}

class RpcServer {
 public:
  explicit RpcServer(int stream_window = 4, const std::string& listen = "127.0.0.1:0",
                     const Tracer* tracer = nullptr, bool share_memory = false,
                     int64_t max_requests = 1000)
      : requests(max_requests, &metrics, &clock),
        service(Context(stream_window, share_memory, tracer)),
        shared_memory(Context(stream_window, share_memory, tracer)),
        health({"a.Service"}) {
    auto started = GrpcServer::Start({.listen = {listen}, .max_image_bytes = 1 << 20},
                                     {&service, &shared_memory, &health});
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    channel = grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments);
    stub = v1::VisionEncoder::NewStub(channel);
  }
  ~RpcServer() {
    // Calls that a test has given up on still wait for their engine.
    engine->Abandon();
    health.Close();
    server->Shutdown(absl::InfinitePast());
  }

  RequestRules rules() { return TestContext(&metrics, &logger, 1).rules; }

  const std::string& address() const { return server->addresses().front(); }

  RpcContext Context(int stream_window, bool share_memory, const Tracer* tracer = nullptr) {
    RpcContext context = TestContext(&metrics, &logger, stream_window, tracer);
    context.requests = &requests;
    if (!share_memory) return context;
    context.regions = &regions;
    context.rules.shared_memory_bytes = regions.limits().bytes;
    return context;
  }

  void Serve() {
    Serving serving{engine, {}};
    serving.info.set_model("deepseek-ocr");
    service.SetServing(std::make_shared<const Serving>(std::move(serving)));
  }

  // Sum of a counter's or gauge's series whose labels are all of `labels`.
  double Metric(const std::string& name,
                const std::vector<std::pair<std::string, std::string>>& labels = {}) const {
    double sum = 0;
    for (const auto& family : metrics.collectable()->Collect()) {
      if (family.name != name) continue;
      for (const auto& sample : family.metric) {
        bool matches = true;
        for (const auto& [key, value] : labels) {
          bool found = false;
          for (const auto& label : sample.label) found |= label.name == key && label.value == value;
          matches &= found;
        }
        if (matches) {
          sum += sample.counter.value + sample.gauge.value +
                 static_cast<double>(sample.histogram.sample_count);
        }
      }
    }
    return sum;
  }

  std::vector<std::string> lines;  // of the log
  Mutex lines_mutex;
  Logger logger{LogLevel::kDebug, LogFormat::kJson, [this](std::string_view line) {
                  const MutexLock lock(lines_mutex);
                  lines.emplace_back(line);
                }};
  Metrics metrics;
  std::shared_ptr<PuppetEngine> engine = std::make_shared<PuppetEngine>();
  const SteadyClock clock;
  RegionTable regions{
      {.regions = 8, .bytes = 64 << 20, .idle = absl::Hours(1), .prefix = "deepencoder"}, &clock};
  RequestLimit requests;
  VisionEncoderService service;
  SharedMemoryService shared_memory;
  HealthService health;
  std::unique_ptr<GrpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::VisionEncoder::Stub> stub;
};

inline v1::EncodeImageRequest SmallRequest(const std::string& id = "") {
  v1::EncodeImageRequest request;
  request.set_id(id);
  request.set_encoded("not looked at by a puppet");
  request.set_mode(v1::MODE_TINY);
  return request;
}

// Bytes that are no message are refused, and the refusal names the message that was awaited.
inline void ExpectRefusesNoMessage(const std::shared_ptr<grpc::Channel>& channel,
                                   const std::string& method, const std::string& message) {
  const grpc::Status status = CallWithBytes(channel, method, "\xff\xff\xff no protobuf");
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), testing::HasSubstr(message));
}

// That no method of the service but those of `large` parses a message of 64 KiB, most of them empty groups.
inline void ExpectRefusesLongMessages(const std::shared_ptr<grpc::Channel>& channel,
                                      const std::string& service,
                                      const std::set<std::string>& large = {}) {
  std::string groups;
  while (groups.size() < (size_t{64} << 10)) groups += "\x7B\x7C";  // field 15
  const google::protobuf::ServiceDescriptor* methods =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
  ASSERT_NE(methods, nullptr) << service;
  for (int i = 0; i < methods->method_count(); ++i) {
    const std::string& name = methods->method(i)->name();
    if (large.contains(name)) continue;
    const grpc::Status status = CallWithBytes(channel, "/" + service + "/" + name, groups);
    EXPECT_THAT(status.error_code(), testing::AnyOf(grpc::RESOURCE_EXHAUSTED, grpc::UNIMPLEMENTED))
        << name << ": " << status.error_message();
    if (status.error_code() == grpc::UNIMPLEMENTED) continue;  // without a look at the message
    EXPECT_THAT(status.error_message(), testing::HasSubstr("Request is 8192")) << name;
  }
}

// Polls until `condition` holds: for what another thread does soon, and a test cannot be told of. The
// limit only keeps a broken build from waiting for ever.
template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 20'000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

}  // namespace deepencoder
