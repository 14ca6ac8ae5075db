#include "server/log.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace deepencoder {
namespace {

std::string_view Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

void WriteToStandardError(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    if (written <= 0) return;
    line.remove_prefix(static_cast<size_t>(written));
  }
}

std::string Timestamp() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
}

// Bytes of the character of UTF-8 that `text`, which is not empty, begins with; 0 if it begins with none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t bytes = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xF0 && byte(1) < 0x90);
  const bool surrogate = byte(0) == 0xED && byte(1) >= 0xA0;
  const bool past_unicode = byte(0) == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || past_unicode ? 0 : bytes;
}

// Control characters, quotes and backslashes escaped as JSON wants it: nothing that a client sent can
// begin a line of its own. What is no UTF-8, which no JSON may hold, becomes U+FFFD.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const char c = text.front();
    if (bytes == 0) {
      quoted += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if ((c >= 0 && c < 0x20) || c == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      quoted += escape;
    } else {
      quoted += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return quoted += '"';
}

std::string FormatDouble(double value, LogFormat format) {
  if (!std::isfinite(value)) return format == LogFormat::kJson ? "null" : "nan";
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string FormatValue(const LogField& field, LogFormat format) {
  if (const auto* text = std::get_if<std::string>(&field.value)) {
    const bool plain = format == LogFormat::kText && !text->empty() &&
                       text->find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789_-.:/,+[]@") == std::string::npos;
    return plain ? *text : Quoted(*text);
  }
  if (const auto* integer = std::get_if<int64_t>(&field.value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&field.value)) return FormatDouble(*real, format);
  return std::get<bool>(field.value) ? "true" : "false";
}

}  // namespace

Logger::Logger(LogLevel least, LogFormat format) : Logger(least, format, WriteToStandardError) {}

Logger::Logger(LogLevel least, LogFormat format, Sink sink)
    : least_(least), format_(format), sink_(std::move(sink)) {}

void Logger::Log(LogLevel level, std::string_view message, std::span<const LogField> fields) const {
  if (!Enabled(level)) return;
  std::string line;
  if (format_ == LogFormat::kJson) {
    line = "{\"time\":\"" + Timestamp() + "\",\"level\":\"" + std::string(Name(level)) +
           "\",\"message\":" + Quoted(message);
    for (const LogField& field : fields) {
      line += "," + Quoted(field.key) + ":" + FormatValue(field, format_);
    }
    line += "}\n";
  } else {
    std::string shown(Name(level));
    shown.resize(7, ' ');
    line = Timestamp() + " " + shown + " ";
    line += message;
    for (const LogField& field : fields) {
      line += " " + std::string(field.key) + "=" + FormatValue(field, format_);
    }
    line += "\n";
  }
  sink_(line);
}

}  // namespace deepencoder
