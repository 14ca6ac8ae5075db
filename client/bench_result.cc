#include "client/bench_result.h"

#include <cstdio>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/tensor_file.h"
#include "encoder/weights/json.h"

namespace deepencoder::client {
namespace {

constexpr char kFormat[] = "deepencoder-bench-1";
constexpr size_t kMaxBytes = size_t{64} << 20;

// Enough digits to read the same number again.
std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*g", std::numeric_limits<double>::max_digits10, value);
  return text;
}

// The members of a Distribution that are numbers, by their names in the file.
constexpr std::pair<const char*, double Distribution::*> kMembers[] = {
    {"mean", &Distribution::mean}, {"min", &Distribution::min}, {"p50", &Distribution::p50},
    {"p90", &Distribution::p90},   {"p99", &Distribution::p99}, {"p99.9", &Distribution::p999},
    {"max", &Distribution::max}};

std::string DistributionJson(const Distribution& values) {
  std::string json = absl::StrCat("{\"count\":", values.count);
  for (const auto& [name, member] : kMembers) {
    absl::StrAppend(&json, ",\"", name, "\":", Number(values.*member));
  }
  return json + "}";
}

std::string PointJson(const BenchPoint& point) {
  std::string json = point.pace.concurrency > 0
                         ? absl::StrCat("{\"concurrency\":", point.pace.concurrency)
                         : "{\"rate\":" + Number(point.pace.rate);
  absl::StrAppend(&json, ",\"seconds\":", Number(point.seconds), ",\"images\":", point.images,
                  ",\"images_per_second\":", Number(point.images_per_second),
                  ",\"tokens_per_second\":", Number(point.tokens_per_second),
                  ",\n   \"latency_seconds\":", DistributionJson(point.latency));
  absl::StrAppend(&json, ",\n   \"latency_seconds_by_mode\":{");
  const char* comma = "";
  for (const auto& [mode, values] : point.latency_by_mode) {
    absl::StrAppend(&json, comma, JsonString(mode), ":", DistributionJson(values));
    comma = ",";
  }
  absl::StrAppend(&json, "},\n   \"stage_seconds\":{");
  for (size_t i = 0; i < kStages.size(); ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",\n    ", JsonString(std::string(kStages[i])), ":",
                    DistributionJson(point.stages[i]));
  }
  absl::StrAppend(&json, "},\n   \"errors\":{");
  comma = "";
  for (const auto& [code, count] : point.errors) {
    absl::StrAppend(&json, comma, JsonString(code), ":", count);
    comma = ",";
  }
  absl::StrAppend(&json, "},\"bytes_sent\":", point.bytes_sent,
                  ",\"bytes_received\":", point.bytes_received,
                  ",\"peak_outstanding\":", point.peak_outstanding, ",\"unsent\":", point.unsent);
  return json + "}";
}

// Reads members of one object; the first error stays, later reads give 0.
class Reader {
 public:
  explicit Reader(const JsonObject& object) : object_(object) {}

  const absl::Status& status() const { return status_; }

  double NumberAt(std::string_view key) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return 0;
    if (value->kind_case() == JsonValue::kNumberValue) return value->number_value();
    Fail(key, "is not a number");
    return 0;
  }
  int64_t WholeAt(std::string_view key) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return 0;
    const auto whole = JsonInteger(*value, 0, int64_t{1} << 53);
    if (whole.ok()) return *whole;
    Fail(key, std::string(whole.status().message()));
    return 0;
  }
  std::string TextAt(std::string_view key) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return "";
    const auto text = deepencoder::JsonString(*value);
    if (text.ok()) return std::string(*text);
    Fail(key, std::string(text.status().message()));
    return "";
  }
  bool BoolAt(std::string_view key) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return false;
    if (value->kind_case() != JsonValue::kBoolValue) Fail(key, "is not true or false");
    return value->bool_value();
  }
  const JsonObject& ObjectAt(std::string_view key) {
    const JsonValue* value = Find(key);
    if (value != nullptr && value->kind_case() != JsonValue::kStructValue) {
      Fail(key, "is not an object");
    }
    return value == nullptr ? JsonObject::default_instance() : value->struct_value();
  }

  void Take(const absl::Status& status, std::string_view key) {
    if (!status.ok()) Fail(key, std::string(status.message()));
  }

 private:
  const JsonValue* Find(std::string_view key) {
    const JsonValue* value = FindJson(object_, key);
    if (value == nullptr) Fail(key, "is missing");
    return value;
  }
  void Fail(std::string_view key, const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(std::string(key) + ": " + what);
  }

  const JsonObject& object_;
  absl::Status status_;
};

Distribution ReadDistribution(Reader& parent, std::string_view key) {
  Reader reader(parent.ObjectAt(key));
  Distribution values;
  values.count = reader.WholeAt("count");
  for (const auto& [name, member] : kMembers) values.*member = reader.NumberAt(name);
  parent.Take(reader.status(), key);
  return values;
}

// Calls `read(reader, key)` for each member of the object at `key`.
template <typename Read>
void ForEach(Reader& parent, std::string_view key, Read read) {
  const JsonObject& object = parent.ObjectAt(key);
  Reader reader(object);
  for (const auto& [name, value] : object.fields()) read(reader, name);
  parent.Take(reader.status(), key);
}

absl::StatusOr<BenchPoint> ReadPoint(const JsonObject& object) {
  Reader reader(object);
  BenchPoint point;
  if (FindJson(object, "concurrency") != nullptr) {
    point.pace.concurrency = static_cast<int>(reader.WholeAt("concurrency"));
  } else {
    point.pace.rate = reader.NumberAt("rate");
  }
  point.seconds = reader.NumberAt("seconds");
  point.images = reader.WholeAt("images");
  point.images_per_second = reader.NumberAt("images_per_second");
  point.tokens_per_second = reader.NumberAt("tokens_per_second");
  point.latency = ReadDistribution(reader, "latency_seconds");
  ForEach(reader, "latency_seconds_by_mode", [&point](Reader& modes, const std::string& mode) {
    point.latency_by_mode[mode] = ReadDistribution(modes, mode);
  });
  Reader stages(reader.ObjectAt("stage_seconds"));
  for (size_t i = 0; i < kStages.size(); ++i) {
    point.stages[i] = ReadDistribution(stages, kStages[i]);
  }
  reader.Take(stages.status(), "stage_seconds");
  ForEach(reader, "errors", [&point](Reader& errors, const std::string& code) {
    point.errors[code] = errors.WholeAt(code);
  });
  point.bytes_sent = static_cast<uint64_t>(reader.WholeAt("bytes_sent"));
  point.bytes_received = static_cast<uint64_t>(reader.WholeAt("bytes_received"));
  point.peak_outstanding = static_cast<int>(reader.WholeAt("peak_outstanding"));
  point.unsent = reader.WholeAt("unsent");
  if (!reader.status().ok()) return reader.status();
  return point;
}

}  // namespace

std::string PaceText(const Pace& pace) {
  if (pace.concurrency > 0) return absl::StrCat("concurrency ", pace.concurrency);
  return absl::StrCat("rate ", pace.rate);
}

std::string ToJson(const BenchResult& result) {
  std::string json = absl::StrCat("{\"format\":\"", kFormat, "\"");
  const std::pair<const char*, const std::string*> texts[] = {
      {"server", &result.server},   {"model", &result.model},   {"device", &result.device},
      {"version", &result.version}, {"commit", &result.commit}, {"mix", &result.mix},
      {"images", &result.images},   {"dtype", &result.dtype},   {"limits", &result.limits}};
  for (const auto& [name, text] : texts) {
    absl::StrAppend(&json, ",\n \"", name, "\":", JsonString(*text));
  }
  absl::StrAppend(&json, ",\n \"synthetic\":", result.synthetic ? "true" : "false",
                  ",\n \"points\":[");
  for (size_t i = 0; i < result.points.size(); ++i) {
    absl::StrAppend(&json, i == 0 ? "\n  " : ",\n  ", PointJson(result.points[i]));
  }
  return json + "]}\n";
}

absl::StatusOr<BenchResult> ParseBenchResult(std::string_view json) {
  const absl::StatusOr<JsonObject> root = ParseJson(json, kMaxBytes);
  if (!root.ok()) return root.status();
  Reader reader(*root);
  const std::string format = reader.TextAt("format");
  if (format != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("no result of 'deepencoder bench --json': format is not ", kFormat));
  }
  BenchResult result;
  result.server = reader.TextAt("server");
  result.model = reader.TextAt("model");
  result.device = reader.TextAt("device");
  result.version = reader.TextAt("version");
  result.commit = reader.TextAt("commit");
  result.mix = reader.TextAt("mix");
  result.images = reader.TextAt("images");
  result.dtype = reader.TextAt("dtype");
  result.limits = reader.TextAt("limits");
  result.synthetic = reader.BoolAt("synthetic");
  const JsonValue* points = FindJson(*root, "points");
  if (points == nullptr || points->kind_case() != JsonValue::kListValue) {
    return absl::InvalidArgumentError("points: is not an array");
  }
  for (const JsonValue& value : points->list_value().values()) {
    absl::StatusOr<BenchPoint> point = ReadPoint(value.struct_value());
    if (!point.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("points[", result.points.size(),
                                                     "]: ", std::string(point.status().message())));
    }
    result.points.push_back(*std::move(point));
  }
  if (!reader.status().ok()) return reader.status();
  return result;
}

absl::StatusOr<BenchResult> ReadBenchResult(const std::string& path) {
  // A file of any kind is read as an image's is: whole.
  const absl::StatusOr<Image> file = ReadImageFile(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<BenchResult> result = ParseBenchResult(file->encoded);
  if (!result.ok()) {
    return absl::InvalidArgumentError(path + ": " + std::string(result.status().message()));
  }
  return result;
}

}  // namespace deepencoder::client
