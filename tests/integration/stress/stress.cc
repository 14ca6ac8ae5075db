#include "tests/integration/stress/stress.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/retry.h"
#include "client/sharing.h"
#include "deepencoder/v1/vision_encoder.grpc.pb.h"

namespace deepencoder {
namespace {

constexpr size_t kWrongKept = 20;
// Of a call that is to end well, however busy the server is.
constexpr absl::Duration kPatience = absl::Minutes(10);
// Of a client's memory: two of the largest replies and their images.
constexpr uint64_t kShare = uint64_t{24} << 20;

struct Item {
  std::string name;
  std::string mode;
  v1::EncodeImageRequest request;
  uint64_t hash = 0;  // of the reply that it gets alone
};

uint64_t HashOf(const v1::EncodeImageResponse& reply) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  const auto add = [&hash](const std::string& bytes) {
    for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  };
  v1::EncodeImageResponse rest = reply;
  rest.clear_data();
  rest.clear_timings();
  rest.clear_padding();  // these alone may differ
  add(rest.SerializeAsString());
  add(reply.data());
  return hash;
}

struct Call {
  grpc::Status status;
  v1::EncodeImageResponse reply;
  absl::Duration retry_after;  // a full server's word
};

class Stress {
 public:
  explicit Stress(const StressOptions& options) : options_(options), random_(options.seed) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    // A connection of its own for each stub.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    for (int i = 0; i < options.clients; ++i) {
      channels_.push_back(
          grpc::CreateCustomChannel(options.server, grpc::InsecureChannelCredentials(), arguments));
      stubs_.push_back(v1::VisionEncoder::NewStub(channels_.back()));
    }
  }

  absl::StatusOr<StressReport> Run() {
    if (absl::Status status = ChooseItems(); !status.ok()) return status;
    for (Item& item : items_) {
      const Call alone = Send({stubs_.front().get()}, item.request, kPatience);
      if (!alone.status.ok()) {
        return absl::Status(static_cast<absl::StatusCode>(alone.status.error_code()),
                            absl::StrCat(item.name, ": ", alone.status.error_message()));
      }
      item.hash = HashOf(alone.reply);
    }
    if (absl::Status status = ShareMemory(); !status.ok()) return status;
    end_ = absl::Now() + options_.duration;
    std::vector<std::thread> clients;
    clients.reserve(static_cast<size_t>(options_.clients));
    for (int i = 0; i < options_.clients; ++i) clients.emplace_back([this, i] { Client(i); });
    for (std::thread& client : clients) client.join();
    return report_;
  }

 private:
  // How a client reaches the server.
  struct Way {
    v1::VisionEncoder::Stub* stub;
    client::Sharing* sharing = nullptr;  // null: all goes in messages
  };

  // A request, perhaps with its image and its reply in shared memory.
  class Placed {
   public:
    Placed(const Way& way, v1::EncodeImageRequest whole) : request_(std::move(whole)) {
      if (way.sharing != nullptr) block_ = way.sharing->Place(request_);
    }
    const v1::EncodeImageRequest& request() const { return request_; }
    // Moves the reply's rows into it. The memory is free for the next call then, unless the server did not
    // answer.
    void End(const grpc::ClientContext& context, Call* call) {
      if (!block_) return;
      if (!client::IsServersAnswer(context, call->status)) block_->Abandon();
      if (call->status.ok()) {
        const auto rows = client::Sharing::Collect(request_, *std::move(block_), call->reply);
        if (rows.ok()) call->reply.set_data(std::string(rows->data));
        call->reply.clear_shared_bytes();
      }
      block_.reset();
    }

   private:
    v1::EncodeImageRequest request_;
    std::optional<client::SharedPool::Block> block_;
  };

  absl::Status ShareMemory() {
    for (int i = 0; i < options_.sharing; ++i) {
      auto sharing = client::Sharing::Start(
          channels_[i], info_, kShare, absl::Now() + kPatience, [] {}, [] {});
      if (!sharing.ok()) return sharing.status();
      sharing_.push_back(*std::move(sharing));
    }
    return absl::OkStatus();
  }

  absl::Status ChooseItems() {
    grpc::ClientContext context;
    const grpc::Status status = stubs_.front()->GetModelInfo(&context, {}, &info_);
    if (!status.ok())
      return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
    std::vector<v1::ModeInfo> modes;
    for (const v1::ModeInfo& mode : info_.modes()) {
      const auto& wanted = options_.modes;
      if (wanted.empty() || std::find(wanted.begin(), wanted.end(), mode.name()) != wanted.end()) {
        modes.push_back(mode);
      }
    }
    if (modes.empty() || options_.images.empty()) {
      return absl::InvalidArgumentError("no image, or no mode that is served");
    }
    for (int i = 0; i < options_.items; ++i) {
      const auto& [name, file] = options_.images[i % options_.images.size()];
      const v1::ModeInfo& mode = modes[random_() % modes.size()];
      Item item;
      item.request.set_encoded(file);
      item.mode = mode.name();
      item.request.set_mode(mode.mode());
      item.request.set_dtype(static_cast<v1::DType>(v1::DTYPE_BF16 + random_() % 3));
      item.request.set_max_tiles(static_cast<int>(4 + random_() % 6));
      item.name = absl::StrCat(name, " ", mode.name(), " ", v1::DType_Name(item.request.dtype()),
                               " ", item.request.max_tiles());
      items_.push_back(std::move(item));
    }
    return absl::OkStatus();
  }

  static Call Send(const Way& way, const v1::EncodeImageRequest& request, absl::Duration timeout) {
    Call call;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    Placed placed(way, request);
    call.status = way.stub->EncodeImage(&context, placed.request(), &call.reply);
    placed.End(context, &call);
    call.retry_after = client::RetryDelayOf(call.status).value_or(absl::ZeroDuration());
    return call;
  }

  static Call SendAndCancel(const Way& way, const v1::EncodeImageRequest& request,
                            absl::Duration after) {
    Call call;
    grpc::ClientContext context;
    std::promise<grpc::Status> ended;
    Placed placed(way, request);
    way.stub->async()->EncodeImage(
        &context, &placed.request(), &call.reply,
        [&ended](grpc::Status status) { ended.set_value(std::move(status)); });
    absl::SleepFor(after);
    context.TryCancel();
    call.status = ended.get_future().get();
    placed.End(context, &call);
    call.retry_after = client::RetryDelayOf(call.status).value_or(absl::ZeroDuration());
    return call;
  }

  // A file that no decoder takes: cut, or with bytes of noise at its head.
  static v1::EncodeImageRequest Broken(const v1::EncodeImageRequest& whole,
                                       std::mt19937_64* random) {
    v1::EncodeImageRequest broken = whole;
    std::string* file = broken.mutable_encoded();
    if ((*random)() % 2 == 0) {
      file->resize((*random)() % 16);
    } else {
      for (size_t i = 0; i < std::min<size_t>(16, file->size()); ++i) {
        (*file)[i] = static_cast<char>((*random)());
      }
    }
    return broken;
  }

  void Client(int index) {
    using enum grpc::StatusCode;
    std::mt19937_64 random(options_.seed * 1000 + static_cast<uint64_t>(index));
    const Way way = {stubs_[index].get(),
                     index < options_.sharing ? sharing_[index].get() : nullptr};
    while (absl::Now() < end_) {
      const Item& item = items_[random() % items_.size()];
      const absl::Duration soon = absl::Microseconds(random() % 100'000);
      absl::Duration wait;
      switch (random() % 10) {
        case 0:
          wait = Note("broken file", item, Send(way, Broken(item.request, &random), kPatience),
                      {INVALID_ARGUMENT});
          break;
        case 1:
          wait =
              Note("near deadline", item, Send(way, item.request, soon), {DEADLINE_EXCEEDED, OK});
          break;
        case 2:
          wait = Note("cancelled", item, SendAndCancel(way, item.request, soon), {CANCELLED, OK});
          break;
        case 3:
          wait = Stream(*way.stub, &random);
          break;
        default:
          wait = Note(way.sharing == nullptr ? "image" : "image in shared memory", item,
                      Send(way, item.request, kPatience), {OK});
      }
      absl::SleepFor(std::min(wait, end_ - absl::Now()));
    }
  }

  // Images on one stream, a broken one among them. Returns when to come back, as Note does.
  absl::Duration Stream(v1::VisionEncoder::Stub& stub, std::mt19937_64* random) {
    constexpr int kImages = 4;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    const auto stream = stub.EncodeImages(&context);
    std::vector<const Item*> sent;
    const int broken = static_cast<int>((*random)() % (2 * kImages));
    for (int i = 0; i < kImages; ++i) {
      sent.push_back(&items_[(*random)() % items_.size()]);
      v1::EncodeImageRequest request =
          i == broken ? Broken(sent.back()->request, random) : sent.back()->request;
      request.set_id(absl::StrCat(i));
      stream->Write(request);
    }
    stream->WritesDone();
    std::vector<int> answers(kImages, 0);
    absl::Duration wait;
    Call call;
    while (stream->Read(&call.reply)) {
      const size_t at = std::min<size_t>(std::stoul(call.reply.id()), kImages - 1);
      ++answers[at];
      call.reply.clear_id();
      call.status = grpc::Status(static_cast<grpc::StatusCode>(call.reply.error().code()),
                                 call.reply.error().message());
      call.retry_after = absl::Seconds(call.reply.error().retry_after());
      wait =
          std::max(wait, Note("streamed image", *sent[at], call,
                              {static_cast<int>(at) == broken ? grpc::StatusCode::INVALID_ARGUMENT
                                                              : grpc::StatusCode::OK}));
    }
    const grpc::Status ended = stream->Finish();
    if (!ended.ok() || answers != std::vector<int>(kImages, 1)) {
      const std::lock_guard lock(mutex_);
      Wrong("stream", absl::StrCat("a stream of ", kImages,
                                   " images ended otherwise than with an answer for each: ",
                                   ended.error_message()));
    }
    return wait;
  }

  // One call and its answer. RESOURCE_EXHAUSTED is an answer to anything: the server is full, and says
  // after how long the client shall come back, which is returned.
  absl::Duration Note(const std::string& kind, const Item& item, const Call& call,
                      const std::vector<grpc::StatusCode>& expected) {
    const grpc::StatusCode code = call.status.error_code();
    const bool right = code == grpc::StatusCode::OK && HashOf(call.reply) == item.hash;
    const std::lock_guard lock(mutex_);
    ++report_.calls;
    ++report_.codes[absl::StatusCodeToString(static_cast<absl::StatusCode>(code))];
    if (right) ++report_.good[kind];
    if (code == grpc::StatusCode::RESOURCE_EXHAUSTED) return call.retry_after;
    if (std::find(expected.begin(), expected.end(), code) == expected.end()) {
      Wrong(absl::StrCat(kind, ", ", item.mode),
            absl::StrCat(kind, ", ", item.name, ": ", call.status.error_message(), " (code ",
                         static_cast<int>(code), ")"));
    } else if (code == grpc::StatusCode::OK && !right) {
      Wrong(absl::StrCat(kind, ", ", item.mode),
            absl::StrCat(kind, ", ", item.name, ": not the reply that it got alone"));
    }
    return absl::ZeroDuration();
  }

  void Wrong(const std::string& kind, std::string what) {
    ++report_.wrong_by_kind[kind];
    if (report_.wrong.size() < kWrongKept) report_.wrong.push_back(std::move(what));
  }

  const StressOptions& options_;
  std::mt19937_64 random_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;         // one a client
  std::vector<std::unique_ptr<v1::VisionEncoder::Stub>> stubs_;  // one a client
  std::vector<std::shared_ptr<client::Sharing>> sharing_;        // of the first clients
  v1::ModelInfo info_;
  std::vector<Item> items_;
  absl::Time end_;
  std::mutex mutex_;
  StressReport report_;  // guarded by mutex_
};

int64_t Sum(const std::map<std::string, int64_t>& counts) {
  int64_t sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

std::string CountsJson(const std::map<std::string, int64_t>& counts) {
  std::string json = "{";
  for (const auto& [name, count] : counts) {
    absl::StrAppend(&json, json.size() > 1 ? ", " : "", "\"", name, "\": ", count);
  }
  return json + "}";
}

}  // namespace

int64_t StressReport::right() const { return Sum(good); }

int64_t StressReport::wrong_count() const { return Sum(wrong_by_kind); }

std::string StressReport::ToJson() const {
  return absl::StrCat("{\"calls\": ", calls, ", \"right\": ", right(),
                      ", \"wrong\": ", wrong_count(), ",\n \"right_by_kind\": ", CountsJson(good),
                      ",\n \"wrong_by_kind\": ", CountsJson(wrong_by_kind),
                      ",\n \"codes\": ", CountsJson(codes), "}\n");
}

absl::StatusOr<StressReport> RunStress(const StressOptions& options) {
  return Stress(options).Run();
}

}  // namespace deepencoder
