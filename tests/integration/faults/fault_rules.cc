#include "tests/integration/faults/fault_rules.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

namespace deepencoder::faults {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(2);

std::vector<Rule> Read() {
  std::vector<Rule> rules;
  static const char* const path = std::getenv(kRulesVariable);
  if (path == nullptr) return rules;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Rule rule;
    rule.line = line;
    if (!(words >> rule.site >> rule.action)) continue;
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos) {
        rule.numbers[word.substr(0, equals)] = std::stoll(word.substr(equals + 1));
      }
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

// Calls since the rule's line came into the file.
struct Turns {
  int64_t calls = 0, fired = 0;
};

}  // namespace

int64_t Rule::Number(const std::string& name, int64_t otherwise) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? otherwise : found->second;
}

std::optional<Rule> Next(const std::string& site) {
  static std::mutex mutex;
  static auto* const turns = new std::map<std::string, Turns>;  // by line; used until the end
  const std::lock_guard lock(mutex);
  const std::vector<Rule> rules = Read();
  std::erase_if(*turns, [&](const auto& entry) {
    for (const Rule& rule : rules) {
      if (rule.line == entry.first) return false;
    }
    return true;
  });
  for (const Rule& rule : rules) {
    if (rule.site != site) continue;
    Turns& turn = (*turns)[rule.line];
    const bool due = ++turn.calls % rule.Number("every", 1) == 0 &&
                     turn.fired < rule.Number("count", std::numeric_limits<int64_t>::max());
    if (!due) continue;
    ++turn.fired;
    return rule;
  }
  return std::nullopt;
}

void WaitWhileThere(const Rule& rule) {
  const auto there = [&] {
    for (const Rule& other : Read()) {
      if (other.line == rule.line) return true;
    }
    return false;
  };
  while (there()) std::this_thread::sleep_for(kPoll);
}

int64_t NumberOf(const std::string& site, const std::string& name, int64_t otherwise) {
  for (const Rule& rule : Read()) {
    if (rule.site == site) return rule.Number(name, otherwise);
  }
  return otherwise;
}

}  // namespace deepencoder::faults
