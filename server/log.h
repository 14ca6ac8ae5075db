// Structured log lines on standard error: text for people, JSON for collectors. Callers log ids, sizes
// and durations, never what a request carried.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace deepencoder {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

struct LogField {
  std::string_view key;
  std::variant<std::string, int64_t, double, bool> value;

  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, std::string_view v) : key(k), value(std::string(v)) {}
  LogField(std::string_view k, const char* v) : key(k), value(std::string(v)) {}
  LogField(std::string_view k, int64_t v) : key(k), value(v) {}
  LogField(std::string_view k, int v) : key(k), value(int64_t{v}) {}
  LogField(std::string_view k, double v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v) {}
};

// Thread-safe: a line is one write. A sink that cannot take it (disk full) loses the line, no more.
class Logger {
 public:
  using Sink = std::function<void(std::string_view line)>;  // a whole line, its end included

  Logger(LogLevel least, LogFormat format);  // to standard error
  Logger(LogLevel least, LogFormat format, Sink sink);

  bool Enabled(LogLevel level) const { return level >= least_; }
  void Log(LogLevel level, std::string_view message, std::span<const LogField> fields) const;
  void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) const {
    Log(level, message, std::span(fields.begin(), fields.size()));
  }

  void Debug(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kDebug, message, fields);
  }
  void Info(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kInfo, message, fields);
  }
  void Warning(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kWarning, message, fields);
  }
  void Error(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kError, message, fields);
  }

 private:
  LogLevel least_;
  LogFormat format_;
  Sink sink_;
};

}  // namespace deepencoder
