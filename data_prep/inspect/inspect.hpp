#pragma once
#include <cstdint>
#include <string>

#include "core/fields.hpp"
#include "core/problems.hpp"
#include "data/shards/token_set.hpp"

namespace trireme::data_prep {

/// Options of `trireme-data inspect`.
struct InspectConfig {
  std::string folder;
  bool json = false;
  std::int64_t line = kNone;
  std::int64_t sample = kNone;

  static constexpr std::int64_t kNone = -1;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("folder", self.folder, "directory made by pack",
          {.placeholder = "DIR", .required = true, .positional = true});
    visit("json", self.json, "print one JSON document on one line");
    visit("line", self.line,
          "show only the document made from line N (from 0) of the first input, with its mask",
          {.placeholder = "N"});
    visit("sample", self.sample, "show only document N (from 0), with its mask",
          {.placeholder = "N"});
  }
};

void check(const InspectConfig& config, Problems& problems);

/// Options of `trireme-data verify`.
struct VerifyConfig {
  std::string folder;
  bool fast = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("folder", self.folder, "directory made by pack",
          {.placeholder = "DIR", .required = true, .positional = true});
    visit("fast", self.fast, "check everything except the tokens");
  }
};

/// Describes a set as one JSON object (keys kind, documents, tokens, target_tokens, bad_lines,
/// truncated, dropped and more, see docs/formats/token-set.md), or as a text for people that ends
/// with the first document. Reads the manifest and the document tables.
std::string inspect_json(const data::TokenSet& set);
std::string inspect_text(const data::TokenSet& set);

}  // namespace trireme::data_prep
