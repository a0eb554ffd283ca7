#pragma once
#include <cstdint>
#include <string>

#include "core/fields.hpp"
#include "core/problems.hpp"

namespace trireme {

/// `trireme-data inspect`.
struct InspectConfig {
  std::string folder;
  bool json = false;
  std::int64_t line = kNone;
  std::int64_t sample = kNone;

  static constexpr std::int64_t kNone = -1;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("folder", self.folder, "folder that pack made",
          {.placeholder = "DIR", .required = true, .positional = true});
    visit("json", self.json, "one JSON document on one line");
    visit("line", self.line,
          "only the document made from line N (from 0) of the first input, with its mask",
          {.placeholder = "N"});
    visit("sample", self.sample, "only document N (from 0), with its mask", {.placeholder = "N"});
  }
};

void check(const InspectConfig& config, Problems& problems);

/// `trireme-data verify`.
struct VerifyConfig {
  std::string folder;
  bool fast = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("folder", self.folder, "folder that pack made",
          {.placeholder = "DIR", .required = true, .positional = true});
    visit("fast", self.fast, "all but the tokens themselves");
  }
};

}  // namespace trireme
