// What metrics and traces cost a server, for metrics_cost.py.
//
//   metrics_cost_bench serve                       three servers, whose engine answers at once with one row: without
//                                                  either, with metrics, with traces; prints their addresses, and
//                                                  for each line on stdin the CPU seconds that the process has used
//   metrics_cost_bench load ADDRESS RATE SECONDS   EncodeImage calls at RATE a second (0: 16 at a time, as fast
//                                                  as they go); prints how many were answered, and in how long
//   metrics_cost_bench calls THREADS REQUESTS      only what a request tells the metrics; prints CPU ns a request
//   metrics_cost_bench traces REQUESTS             only what a request does for traces; prints CPU ns a request
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"
#include "server/metrics/metrics.h"
#include "server/options.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/vision_encoder_service.h"
#include "server/trace/otlp_exporter.h"
#include "server/trace/tracer.h"
#include "tests/server/trace/collector.h"

namespace deepencoder {
namespace {

// What ServingEngine tells its observer of an image that is alone in its batch, in its order.
void TellOneImage(EngineObserver& observer) {
  constexpr int kSide = 512, kViewBytes = 3 * kSide * kSide;
  observer.OnInFlight(1, 2 * kViewBytes);
  observer.OnDecodePool(1, 2);
  observer.OnStage(Stage::kDecode, Mode::kTiny, 0.004);
  observer.OnStage(Stage::kViews, Mode::kTiny, 0.002);
  observer.OnStage(Stage::kAssemble, Mode::kTiny, 0.00001);
  observer.OnInFlight(1, kViewBytes);
  observer.OnQueue(1, kViewBytes);
  observer.OnDecodePool(0, 2);
  observer.OnQueue(0, 0);
  observer.OnBatch(0, kSide, 1, 1, GraphUse::kHit, 0.003);
  observer.OnStage(Stage::kQueue, Mode::kTiny, 0.001);
  observer.OnStage(Stage::kCompute, Mode::kTiny, 0.003);
  observer.OnImage(Mode::kTiny, 73);
  observer.OnInFlight(0, 0);
}

void TellOneCall(RpcObserver& observer) {
  observer.OnCallStarted(Method::kEncodeImage);
  observer.OnAnswered(Method::kEncodeImage, 0.011);
  observer.OnCallEnded(Method::kEncodeImage, grpc::StatusCode::OK);
}

class Nothing final : public EngineObserver, public RpcObserver {
 public:
  void OnStage(Stage, Mode, double) override {}
  void OnBatch(int, int, int, int, GraphUse, double) override {}
  void OnQueue(int64_t, int64_t) override {}
  void OnInFlight(int64_t, int64_t) override {}
  void OnReject(RejectReason) override {}
  void OnDrop(DropReason, Stage) override {}
  void OnImage(Mode, int) override {}
  void OnCache(bool) override {}
  void OnCacheSize(int64_t, int64_t) override {}
  void OnDecodePool(int, int) override {}
  void OnCallStarted(Method) override {}
  void OnCallEnded(Method, grpc::StatusCode) override {}
  void OnAnswered(Method, double) override {}
  void OnStreamImage(grpc::StatusCode) override {}
  void OnAuthFailure(AuthFailure) override {}
  void OnConnections(int64_t) override {}
  void OnConnectionRefused(ConnectionRefusal) override {}
  void OnStalledReply() override {}
};

class InstantEngine final : public Engine {
 public:
  explicit InstantEngine(EngineObserver* observer) : observer_(observer) {
    row_.rows = 1;
    row_.bytes = kEmbeddingWidth * SizeOf(row_.dtype);
    row_.data = std::make_shared<std::byte[]>(row_.bytes);
    row_.mode = Mode::kTiny;
  }
  void Encode(EncodeJob job, EncodeDone done) override {
    TellOneImage(*observer_);
    if (job.timeline != nullptr) {
      const absl::Time now = absl::Now();
      for (const char* step : {"admission", "decode", "views", "assemble", "queue", "compute"}) {
        job.timeline->Add(step, now, now);
      }
    }
    done(row_);
  }
  bool healthy() const override { return true; }
  bool Drain(absl::Time) override { return true; }

 private:
  EngineObserver* const observer_;
  EncodeResult row_;
};

double CpuSeconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One of the servers that are compared.
class Served {
 public:
  // `tracer` may be null.
  template <typename Observer>
  Served(Observer* observer, const Logger* logger, const Tracer* tracer)
      : service_({.rules = {.modes = {Mode::kTiny}, .max_image_bytes = 1 << 20},
                  .max_image_pixels = 1 << 20,
                  .observer = observer,
                  .logger = logger,
                  .tracer = tracer}) {
    auto server = GrpcServer::Start({.listen = {"127.0.0.1:0"}}, {&service_});
    if (!server.ok()) return;
    server_ = *std::move(server);
    service_.SetServing(
        std::make_shared<const Serving>(Serving{std::make_shared<InstantEngine>(observer), {}}));
  }
  ~Served() {
    if (server_ != nullptr) server_->Shutdown(absl::InfinitePast());
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  std::string address() const { return server_ == nullptr ? "" : server_->addresses().front(); }

 private:
  VisionEncoderService service_;
  std::unique_ptr<GrpcServer> server_;
};

int Serve() {
  const Logger logger(LogLevel::kError, LogFormat::kText);
  Metrics metrics;
  metrics.StartCounting();
  Nothing nothing;
  Collector collector;  // in this process: its share counts against us
  auto exporter = OtlpExporter::Start({.endpoint = collector.address()}, &logger);
  if (!exporter.ok()) return EXIT_FAILURE;
  const Tracer tracer(DefaultOptions().trace_ratio, exporter->get());
  const Served without(&nothing, &logger, nullptr), with_metrics(&metrics, &logger, nullptr),
      with_traces(&nothing, &logger, &tracer);
  std::printf("%s %s %s\n", without.address().c_str(), with_metrics.address().c_str(),
              with_traces.address().c_str());
  std::fflush(stdout);
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    if (c != '\n') continue;
    std::printf("%.6f\n", CpuSeconds(RUSAGE_SELF));
    std::fflush(stdout);
  }
  return EXIT_SUCCESS;
}

// Calls under way over one channel; each answered one makes room for another.
class Load {
 public:
  explicit Load(const std::string& address)
      : stub_(v1::VisionEncoder::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    request_.set_encoded(std::string(1000, 'x'));  // the engine does not look
    request_.set_mode(v1::MODE_TINY);
  }

  void Send() {
    struct Call {
      grpc::ClientContext context;
      v1::EncodeImageResponse response;
    };
    auto* call = new Call;
    ++under_way_;
    stub_->async()->EncodeImage(&call->context, &request_, &call->response,
                                [this, call](const grpc::Status& status) {
                                  if (status.ok()) ++answered_;
                                  delete call;
                                  --under_way_;
                                });
  }
  int under_way() const { return under_way_; }
  int64_t answered() const { return answered_; }

 private:
  const std::unique_ptr<v1::VisionEncoder::Stub> stub_;
  v1::EncodeImageRequest request_;
  std::atomic<int> under_way_{0};
  std::atomic<int64_t> answered_{0};
};

int RunLoad(const std::string& address, double rate, double seconds) {
  constexpr int kAtATime = 16;
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [start = Clock::now()] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  Load load(address);
  for (int64_t sent = 0; elapsed() < seconds;) {
    const bool due =
        rate > 0 ? static_cast<double>(sent) < rate * elapsed() : load.under_way() < kAtATime;
    if (due) {
      load.Send();
      ++sent;
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  const double spent = elapsed();
  while (load.under_way() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::printf("%lld %.6f\n", static_cast<long long>(load.answered()), spent);
  return EXIT_SUCCESS;
}

int RunCalls(int threads, int64_t requests) {
  Metrics metrics;
  metrics.StartCounting();
  std::vector<std::thread> running;
  const double begin = CpuSeconds(RUSAGE_SELF);
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&] {
      for (int64_t i = 0; i < requests; ++i) {
        TellOneCall(metrics);
        TellOneImage(metrics);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  const double total = static_cast<double>(threads) * static_cast<double>(requests);
  std::printf("%.1f\n", 1e9 * (CpuSeconds(RUSAGE_SELF) - begin) / total);
  return EXIT_SUCCESS;
}

// What a call without a parent does for traces, those of the default ratio that are kept included, down to
// the collector's taking them.
int RunTraces(int64_t requests) {
  const Logger logger(LogLevel::kError, LogFormat::kText);
  Collector collector;
  auto exporter = OtlpExporter::Start({.endpoint = collector.address()}, &logger);
  if (!exporter.ok()) return EXIT_FAILURE;
  const Tracer tracer(DefaultOptions().trace_ratio, exporter->get());
  const double begin = CpuSeconds(RUSAGE_SELF);
  size_t bytes = 0;
  for (int64_t i = 0; i < requests; ++i) {
    const Span call = tracer.Begin("", "");
    bytes += FormatTraceparent(call.context).size();
    if (!call.context.sampled) continue;
    std::vector<Span> spans = {call};
    for (const char* step :
         {"admission", "decode", "views", "assemble", "queue", "compute", "reply"}) {
      spans.push_back(Tracer::Child(call, step, absl::Now(), absl::Now()));
    }
    tracer.Record(std::move(spans));
  }
  exporter->reset();
  std::printf("%.1f\n", 1e9 * (CpuSeconds(RUSAGE_SELF) - begin) / static_cast<double>(requests));
  return bytes > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int Main(const std::vector<std::string>& args) {
  if (args.size() == 1 && args[0] == "serve") return Serve();
  if (args.size() == 4 && args[0] == "load") {
    return RunLoad(args[1], std::atof(args[2].c_str()), std::atof(args[3].c_str()));
  }
  if (args.size() == 3 && args[0] == "calls") {
    return RunCalls(std::atoi(args[1].c_str()), std::atoll(args[2].c_str()));
  }
  if (args.size() == 2 && args[0] == "traces") return RunTraces(std::atoll(args[1].c_str()));
  std::fprintf(stderr, "usage: see the head of metrics_cost_bench.cc\n");
  return 2;
}

}  // namespace
}  // namespace deepencoder

int main(int argc, char** argv) { return deepencoder::Main({argv + 1, argv + argc}); }
