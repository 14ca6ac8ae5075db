// What an option's row does with the text of its value: parse it, check it, store it in its field.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/options.h"
#include "server/options_table.h"
#include "server/values.h"

namespace deepencoder::option_setters {

using Setter = OptionSpec::Setter;

inline constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

// Stores what `parse` makes of the text.
template <typename Field, typename Parse>
Setter Store(Field ServerOptions::*field, Parse parse) {
  return [field, parse](std::string_view text, ServerOptions& options) {
    auto value = parse(text);
    if (!value.ok()) return value.status();
    options.*field = *std::move(value);
    return absl::OkStatus();
  };
}

inline Setter Integer(int64_t ServerOptions::*field, int64_t min, int64_t max) {
  return Store(field, [=](std::string_view text) { return ParseInteger(text, min, max); });
}

inline Setter Bytes(int64_t ServerOptions::*field, int64_t min, int64_t max) {
  return Store(field, [=](std::string_view text) { return ParseBytes(text, min, max); });
}

inline Setter Duration(absl::Duration ServerOptions::*field, absl::Duration max) {
  return Store(
      field, [=](std::string_view text) { return ParseDuration(text, absl::ZeroDuration(), max); });
}

inline Setter Switch(bool ServerOptions::*field) { return Store(field, ParseBool); }

inline Setter Text(std::string ServerOptions::*field) {
  return Store(field, [](std::string_view text) -> absl::StatusOr<std::string> {
    return std::string(text);
  });
}

template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
absl::StatusOr<Value> Choose(std::string_view text, const Choices<Value>& choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (text == name) return value;
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(text), "' is not one of: ", names));
}

template <typename Value>
Setter Choice(Value ServerOptions::*field, Choices<Value> choices) {
  return Store(field, [choices](std::string_view text) { return Choose(text, choices); });
}

// Comma-separated items, each made by `parse`; `check` looks at the whole.
template <typename Item, typename Parse, typename Check>
Setter ListOf(std::vector<Item> ServerOptions::*field, Parse parse, Check check) {
  return Store(field, [=](std::string_view text) -> absl::StatusOr<std::vector<Item>> {
    auto texts = ParseList(text);
    if (!texts.ok()) return texts.status();
    std::vector<Item> items;
    for (const std::string& item_text : *texts) {
      absl::StatusOr<Item> item = parse(item_text);
      if (!item.ok()) return item.status();
      items.push_back(*std::move(item));
    }
    if (absl::Status status = check(items); !status.ok()) return status;
    return items;
  });
}

template <typename Item>
absl::Status CheckNotEmpty(const std::vector<Item>& items) {
  return items.empty() ? absl::InvalidArgumentError("the list is empty") : absl::OkStatus();
}

}  // namespace deepencoder::option_setters
