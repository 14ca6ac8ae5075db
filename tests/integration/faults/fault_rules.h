// What is to fail, from a file that a test writes while the server runs.
//
// A line a rule, looked at anew at every call:   SITE ACTION [NAME=NUMBER]...
//   backend  error | memory | throw | hang        making a backend: weights to the device
//   slot     error | memory | throw | hang        making a slot: its memory, its graphs
//   views    error | memory | throw | slow | hang MakeViews: pixels to the device
//   encode   error | memory | throw | slow | hang Encode, before anything is computed: a launch
//   rows     error | nan                          Encode, after it: rows half written, or not numbers
//   new      fail                                 operator new of `bytes` or more, after `backend`
//   thread   fail                                 pthread_create, after `backend`
//   clock    jump                                 the wall clock is `seconds` ahead
// Of every rule: every=N (each Nth call alone; 1), count=N (so often at most; for ever). slow takes ms=N.
// hang returns when its line is gone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace deepencoder::faults {

struct Rule {
  std::string line, site, action;
  std::map<std::string, int64_t> numbers;

  int64_t Number(const std::string& name, int64_t otherwise) const;
};

// The environment variable with the path of the file; without it nothing fails.
inline constexpr char kRulesVariable[] = "FAULT_RULES_FILE";

// The rule that this call of `site` falls under, if it is this call's turn. Thread-safe.
std::optional<Rule> Next(const std::string& site);

// Returns once the file has the rule's line no more.
void WaitWhileThere(const Rule& rule);

// The number `name` of the first rule of `site`, whatever its turn; `otherwise` without one.
int64_t NumberOf(const std::string& site, const std::string& name, int64_t otherwise);

}  // namespace deepencoder::faults
