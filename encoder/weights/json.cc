#include "encoder/weights/json.h"

#include <google/protobuf/util/json_util.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

using google::protobuf::Value;

constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53

// protobuf's parser needs quadratic time for deep nesting and takes strings in single quotes:
// neither gets that far.
absl::Status CheckNesting(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '\'') {
      return absl::InvalidArgumentError(
          absl::StrCat("not JSON: a single quote outside a string at byte ", i));
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxJsonDepth) {
        return absl::InvalidArgumentError(
            absl::StrCat("JSON nested deeper than ", kMaxJsonDepth, " levels at byte ", i));
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return absl::OkStatus();
}

std::string Dotted(std::initializer_list<std::string_view> path, size_t count) {
  std::string text;
  for (const std::string_view part : path) {
    if (count-- == 0) break;
    if (!text.empty()) text += '.';
    text += part;
  }
  return text;
}

}  // namespace

absl::StatusOr<JsonObject> ParseJson(std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON of ", text.size(), " bytes is over the limit of ", max_bytes, " bytes"));
  }
  if (absl::Status nesting = CheckNesting(text); !nesting.ok()) return nesting;
  JsonObject object;
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(text.data(), text.size()), &object);
  if (!status.ok()) {
    // The parser's message quotes the text with newlines in it; one line is enough.
    std::string message(status.message().data(), status.message().size());
    message = message.substr(0, message.find('\n'));
    return absl::InvalidArgumentError(absl::StrCat("not a JSON object: ", message));
  }
  return object;
}

absl::StatusOr<JsonObject> ReadJsonFile(const std::string& path, size_t max_bytes) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (error) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
  if (type != std::filesystem::file_type::regular) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  std::string text;
  char buffer[65536];
  size_t got = 0;
  while (text.size() <= max_bytes &&
         (got = std::fread(buffer, 1, sizeof(buffer), file.get())) > 0) {
    text.append(buffer, got);
  }
  if (std::ferror(file.get()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  }
  absl::StatusOr<JsonObject> object = ParseJson(text, max_bytes);
  if (!object.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", object.status().message()));
  }
  return object;
}

const JsonValue* FindJson(const JsonObject& object, std::string_view key) {
  const auto found = object.fields().find(std::string(key));
  return found == object.fields().end() ? nullptr : &found->second;
}

absl::StatusOr<const JsonValue*> FindJson(const JsonObject& root,
                                          std::initializer_list<std::string_view> path) {
  const JsonObject* object = &root;
  const JsonValue* value = nullptr;
  size_t depth = 0;
  for (const std::string_view key : path) {
    if (value != nullptr) {
      if (!value->has_struct_value()) {
        return absl::InvalidArgumentError(absl::StrCat(
            Dotted(path, depth), " must be an object, found ", std::string(JsonKind(*value))));
      }
      object = &value->struct_value();
    }
    ++depth;
    value = FindJson(*object, key);
    if (value == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(Dotted(path, depth), " is missing"));
    }
  }
  return value;
}

absl::StatusOr<int64_t> JsonInteger(const JsonValue& value, int64_t min, int64_t max) {
  const std::string expected = absl::StrCat("expected a whole number from ", min, " to ", max);
  if (value.kind_case() != Value::kNumberValue) {
    return absl::InvalidArgumentError(
        absl::StrCat(expected, ", found ", std::string(JsonKind(value))));
  }
  const double number = value.number_value();
  if (!(std::fabs(number) <= kLargestExactInteger) || number != std::floor(number) ||
      static_cast<int64_t>(number) < min || static_cast<int64_t>(number) > max) {
    return absl::InvalidArgumentError(absl::StrCat(expected, ", found ", number));
  }
  return static_cast<int64_t>(number);
}

absl::StatusOr<std::vector<int64_t>> JsonIntegers(const JsonValue& value, int64_t min, int64_t max,
                                                  size_t max_count) {
  if (!value.has_list_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected an array, found ", std::string(JsonKind(value))));
  }
  const auto& items = value.list_value().values();
  if (static_cast<size_t>(items.size()) > max_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected an array of at most ", max_count, " numbers, found ", items.size()));
  }
  std::vector<int64_t> numbers;
  numbers.reserve(items.size());
  for (const JsonValue& item : items) {
    absl::StatusOr<int64_t> number = JsonInteger(item, min, max);
    if (!number.ok()) return std::move(number).status();
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::string_view> JsonString(const JsonValue& value) {
  if (value.kind_case() != Value::kStringValue) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a string, found ", std::string(JsonKind(value))));
  }
  return std::string_view(value.string_value());
}

std::string_view JsonKind(const JsonValue& value) {
  switch (value.kind_case()) {
    case Value::kNullValue:
      return "null";
    case Value::kNumberValue:
      return "a number";
    case Value::kStringValue:
      return "a string";
    case Value::kBoolValue:
      return "true or false";
    case Value::kStructValue:
      return "an object";
    case Value::kListValue:
      return "an array";
    case Value::KIND_NOT_SET:
      break;
  }
  return "nothing";
}

}  // namespace deepencoder
