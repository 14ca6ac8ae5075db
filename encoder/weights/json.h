// The project's JSON reader, for files that others wrote: protobuf's parser with limits around it.
#pragma once

#include <google/protobuf/struct.pb.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace deepencoder {

using JsonObject = google::protobuf::Struct;
using JsonValue = google::protobuf::Value;

inline constexpr int kMaxJsonDepth = 32;  // of objects and arrays

// Parses one JSON object. Errors: INVALID_ARGUMENT for more than `max_bytes`, a syntax error, a key
// that occurs twice in an object, nesting past kMaxJsonDepth, or a root that is not an object.
absl::StatusOr<JsonObject> ParseJson(std::string_view text, size_t max_bytes);

// As ParseJson, from a file; errors start with the path. NOT_FOUND: no such file.
absl::StatusOr<JsonObject> ReadJsonFile(const std::string& path, size_t max_bytes);

// The value of `key`, or null.
const JsonValue* FindJson(const JsonObject& object, std::string_view key);

// The value at a path of keys. Errors: INVALID_ARGUMENT naming the part that is missing or no
// object.
absl::StatusOr<const JsonValue*> FindJson(const JsonObject& root,
                                          std::initializer_list<std::string_view> path);

// Errors: INVALID_ARGUMENT unless the value is a whole number in [min, max]. JSON numbers are read
// as doubles, so whole numbers past 2^53 are refused as well: they may have been rounded.
absl::StatusOr<int64_t> JsonInteger(const JsonValue& value, int64_t min, int64_t max);

// An array of such numbers, at most `max_count` of them.
absl::StatusOr<std::vector<int64_t>> JsonIntegers(const JsonValue& value, int64_t min, int64_t max,
                                                  size_t max_count);

// Errors: INVALID_ARGUMENT unless the value is a string. The view lives as long as the value.
absl::StatusOr<std::string_view> JsonString(const JsonValue& value);

// The value's type in words, for messages: "a number".
std::string_view JsonKind(const JsonValue& value);

}  // namespace deepencoder
