#include "data_prep/tokenizer_path.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "core/error.hpp"

namespace trireme::data_prep {
namespace {

namespace fs = std::filesystem;

bool has_tokenizer(const fs::path& directory) {
  std::error_code code;
  const auto has = [&](const char* name) { return fs::exists(directory / name, code); };
  return has("tokenizer.json") || (has("vocab.json") && has("merges.txt"));
}

/// Returns true for the name of a committed checkpoint: "step-" and nine digits.
bool is_step(const std::string& name) {
  constexpr std::string_view kStep = "step-";
  return name.starts_with(kStep) && name.size() == kStep.size() + 9 &&
         std::all_of(name.begin() + kStep.size(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Returns the newest checkpoint in `directory` with a tokenizer; "" if there is none.
fs::path newest_with_tokenizer(const fs::path& directory) {
  fs::path newest;
  std::error_code code;
  for (fs::directory_iterator it(directory, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (is_step(name) && has_tokenizer(it->path()) && name > newest.filename().string())
      newest = it->path();
  }
  return newest;
}

}  // namespace

text::Tokenizer load_tokenizer(const fs::path& place) {
  std::error_code code;
  if (!fs::is_directory(place, code) || has_tokenizer(place)) return text::Tokenizer::load(place);
  for (const fs::path& directory : {place / "checkpoints", place}) {
    const fs::path newest = newest_with_tokenizer(directory);
    if (!newest.empty()) return text::Tokenizer::load(newest);
  }
  fail(ErrorKind::data, "{} contains no tokenizer.json: give a {}", place.string(),
       kTokenizerPathHelp);
}

}  // namespace trireme::data_prep
