#include "train/start/chat_markers.hpp"

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "core/join.hpp"
#include "text/chat/markers.hpp"
#include "text/tokenizer.hpp"

namespace trireme {
namespace {

/// Returns the training and validation sets of a run without duplicates.
std::vector<const TokenSet*> sets_of(const RunData& data) {
  std::vector<const TokenSet*> sets = data.stream().sets();
  for (const SampleSet& samples : data.validation()) {
    if (std::find(sets.begin(), sets.end(), &samples.set()) == sets.end())
      sets.push_back(&samples.set());
  }
  return sets;
}

}  // namespace

std::string check_chat_markers(const RunData& data, bool is_allowed, RunStart::Kind start) {
  const Tokenizer tokenizer =
      Tokenizer::from_files(data.tokenizer_files(), data.stream().first_set().folder().string());
  for (const TokenSet* set : sets_of(data)) {
    const std::string name = set->manifest().chat_template();
    if (name.empty()) continue;
    const auto missing = missing_markers(chat_template(name), tokenizer);
    if (missing.empty()) continue;
    const std::string what =
        formatted("{} was packed with --template {}, and its tokenizer does not have {} as {}",
                  set->folder().string(), name, joined(missing, " "),
                  missing.size() == 1 ? "a token" : "tokens");
    if (is_allowed || start == RunStart::Kind::go_on)
      return what + ": the model learns them as ordinary text";
    fail(
        ErrorKind::usage,
        "{}. A model that learns them as ordinary text has no token that ends an answer. Pack with a --template of this tokenizer, or with a tokenizer that has these tokens (`trireme-data tokenizer train --special-tokens` adds them), or give --allow-missing-markers",
        what);
  }
  return "";
}

}  // namespace trireme
