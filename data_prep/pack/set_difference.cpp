#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "data_prep/pack/pack_directory.hpp"

namespace trireme::data_prep {
namespace {

/// Returns the option of a key: "special_in_text" is --special-in-text. A few keys have other
/// names.
std::string option_of(std::string key) {
  if (key == "system_prompts_xxh3") return "--system-prompts (hash)";
  if (key == "packing_rule") return "the packing rule of the program";
  if (key == "import") return "--format";
  if (key == "indexes") return "the .idx files (hashes)";
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

class Differences {
 public:
  void add(const std::string& text) { text_ += text_.empty() ? text : "; " + text; }

  template <class T>
  void compare(const std::string& what, const T& there, const T& here) {
    if (there != here) add(formatted("{} is {} in the data set, {} in this command", what, there, here));
  }

  void compare_options(const Json& there, const Json& here) {
    for (const auto& item : here.items()) {
      const auto found = there.find(item.key());
      const std::string value = found == there.end() ? "not given" : found->dump();
      compare(option_of(item.key()), value, item.value().dump());
    }
    for (const auto& item : there.items()) {
      if (!here.contains(item.key()))
        compare<std::string>(option_of(item.key()), item.value().dump(), "not given");
    }
  }

  void compare_inputs(const std::vector<data::SourceEntry>& there,
                      const std::vector<data::SourceEntry>& here) {
    compare("the number of inputs", there.size(), here.size());
    for (std::size_t i = 0; i < std::min(there.size(), here.size()); ++i) {
      const data::SourceEntry& a = there[i];
      const data::SourceEntry& b = here[i];
      if (a.name != b.name) {
        compare(formatted("input {}", i + 1), a.name, b.name);
        return;  // an inserted input changes all later ones too
      }
      if (a.size != b.size) {
        compare(formatted("size of input {}", a.name), a.size, b.size);
      } else if (a.fingerprint != b.fingerprint) {
        add(formatted("the input {} has changed", a.name));
      }
    }
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string describe_difference(const data::Manifest& found, const data::Manifest& asked) {
  Differences differences;
  differences.compare("--kind", found.kind, asked.kind);
  differences.compare("--seq-len", found.seq_len, asked.seq_len);
  differences.compare("--tokenizer (hash)", found.tokenizer_hash, asked.tokenizer_hash);
  if (found.tokenizer_hash == asked.tokenizer_hash) {
    differences.compare("the vocabulary", found.vocab_size, asked.vocab_size);
    if (found.tokenizer_files != asked.tokenizer_files)
      differences.add("the tokenizer's files differ");
  }
  differences.compare_options(parse_json(found.config_json, "config of the existing set"),
                              parse_json(asked.config_json, "config"));
  differences.compare_inputs(found.sources, asked.sources);
  return differences.text().empty() ? "other inputs or options" : differences.text();
}

std::string describe_difference(const data::ShardMeta& found, const data::Manifest& asked,
                                std::size_t num_shards) {
  Differences differences;
  differences.compare("--kind", found.kind, asked.kind);
  if (!found.packs.empty())
    differences.compare("--seq-len", found.packs.begin()->first, asked.seq_len);
  differences.compare("the vocabulary", found.vocab_size, asked.vocab_size);
  differences.compare<std::uint64_t>("the number of shards", found.shard_count, num_shards);
  return differences.text().empty() ? ": other inputs, another tokenizer or other options"
                                    : ": " + differences.text();
}

}  // namespace trireme::data_prep
