#include "text/bpe/token_table.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_set>

#include "core/hash/xxh3.hpp"
#include "text/unicode/byte_level.hpp"
#include "text/unicode/nfc.hpp"

namespace trireme {
namespace {

/// The steps of a ByteLevel alone, which hashes have described as such from the beginning.
struct ByteLevelForm {
  bool prefix_space = false;
  bool regex = false;
};

std::optional<ByteLevelForm> byte_level_form(std::span<const SplitStep> steps) {
  ByteLevelForm form;
  if (!steps.empty() && steps.front() == SplitStep::prefix_space) {
    form.prefix_space = true;
    steps = steps.subspan(1);
  }
  if (!steps.empty() && steps.front() == SplitStep::gpt2) {
    form.regex = true;
    steps = steps.subspan(1);
  }
  return steps.empty() ? std::optional(form) : std::nullopt;
}

}  // namespace

TokenTable::TokenTable(const TokenizerSpec& spec) : special(spec.vocab_size) {
  std::vector<std::string> text(spec.vocab_size);
  std::unordered_set<std::string_view> specials;
  for (const auto& [token, id] : spec.vocab) text[id] = token;
  for (const AddedToken& token : spec.added) {  // a model's token of the same id has no say
    text[token.id] = spec.nfc && token.normalized ? to_nfc(token.content) : token.content;
    if (token.special) specials.insert(token.content);
  }
  // Hugging Face asks for the text as it decodes it: one that NFC changes is no special token's.
  for (const AddedToken& token : spec.added) special[token.id] = specials.contains(text[token.id]);
  start.push_back(0);
  for (const std::string& token : text) {
    bytes += from_byte_level(token);
    start.push_back(static_cast<std::uint32_t>(bytes.size()));
  }
}

std::string content_hash(const TokenizerSpec& spec) {
  Hasher hasher;
  const auto line = [&hasher](const auto&... values) {
    std::string text;
    (text.append(values).push_back('\t'), ...);
    hasher.update(text + '\n');
  };
  const auto number = [](auto value) { return std::to_string(value); };
  line("trireme-tokenizer-1", "bpe", number(spec.ignore_merges));
  std::vector<std::pair<std::uint32_t, std::string_view>> vocab;
  for (const auto& [token, id] : spec.vocab) vocab.emplace_back(id, token);
  std::sort(vocab.begin(), vocab.end());
  // Lengths first, so that no token can look like two lines.
  for (const auto& [id, token] : vocab)
    line("token", number(id), number(token.size()), std::string(token));
  for (const MergeRule& rule : spec.merges) line("merge", number(rule.left), number(rule.right));
  for (const AddedToken& token : spec.added) {
    line("added", number(token.id), number(token.content.size()), token.content,
         number(token.single_word), number(token.lstrip), number(token.rstrip),
         number(token.normalized), number(token.special));
  }
  if (const auto form = byte_level_form(spec.steps)) {
    line("split", form->regex ? "gpt2" : "none", number(form->prefix_space));
  } else {
    for (const SplitStep step : spec.steps) line("step", name_of(step));
  }
  if (spec.nfc) line("nfc");
  for (const std::uint32_t id : spec.prefix_ids) line("before", number(id));
  for (const std::uint32_t id : spec.suffix_ids) line("after", number(id));
  return hasher.hex();
}

}  // namespace trireme
