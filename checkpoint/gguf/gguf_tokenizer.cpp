#include "checkpoint/gguf/gguf_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/exchange/special_tokens.hpp"
#include "checkpoint/gguf/gguf_pieces.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/join.hpp"
#include "text/spec/tokenizer_spec.hpp"

namespace trireme::checkpoint {
namespace {

/// Types of tokens in llama.cpp.
enum TokenType : std::int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

/// A pre-tokenizer of llama.cpp.
struct PreTokenizer {
  std::string_view name;
  std::vector<text::SplitStep> steps;
  bool ignore_merges;
};

std::string_view pre_tokenizer_name(const text::TokenizerSpec& spec, const std::string& where) {
  using enum text::SplitStep;
  static const std::array<PreTokenizer, 6> kKnown{{{"gpt-2", {gpt2}, false},
                                                   {"smollm", {single_digits, gpt2}, false},
                                                   {"qwen2", {qwen2}, false},
                                                   {"qwen35", {qwen35}, false},
                                                   {"llama-bpe", {llama3}, true},
                                                   {"dbrx", {llama3}, false}}};
  for (const PreTokenizer& known : kKnown)
    if (known.steps == spec.steps && known.ignore_merges == spec.ignore_merges) return known.name;
  fail(ErrorKind::usage,
       "{}: --format gguf: llama.cpp has no pre-tokenizer for the steps {}{} of this tokenizer. "
       "Supported steps: {}. Export with --format hf instead",
       where, joined(spec.steps, " + ", [](text::SplitStep step) { return text::name_of(step); }),
       spec.ignore_merges ? " with ignore_merges" : "", joined(kKnown, ", ", [](const auto& known) {
         return cat(
             joined(known.steps, " + ", [](text::SplitStep step) { return text::name_of(step); }),
             known.ignore_merges ? " with ignore_merges" : "");
       }));
}

/// Returns the id that a post-processor adds at one end; none if it adds nothing.
std::optional<std::uint32_t> added_id(const std::vector<std::uint32_t>& ids, std::string_view end,
                                      const std::string& where) {
  if (ids.size() > 1)
    fail(
        ErrorKind::usage,
        "{}: --format gguf: the tokenizer adds {} tokens at the {} of a text, and llama.cpp adds at "
        "most one. Export with --format hf instead",
        where, ids.size(), end);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

/// Returns the type of an added token. llama.cpp cuts the text of such a token out of a text, except
/// for normal tokens.
TokenType added_type(const text::TokenizerSpec& spec, const text::AddedToken& added) {
  if (spec.pieces && spec.pieces->unk_id == added.id) return unknown;
  if (added.special) return control;
  return spec.pieces && !is_cut_out(added) ? normal : user_defined;
}

/// Adds the texts and types of tokens. Returns the texts.
std::vector<std::string> put_tokens(const text::TokenizerSpec& spec, std::int64_t vocab_size,
                                    const std::string& where, GgufValues& values) {
  std::vector<std::string> tokens;
  for (std::int64_t id = 0; id < vocab_size; ++id) tokens.push_back(formatted("[PAD{}]", id));
  std::vector<std::int32_t> types(tokens.size(), unused);
  for (const auto& [token, id] : spec.vocab) {
    tokens.at(id) = token;
    types.at(id) = spec.pieces && text::byte_of_token(token) ? byte : normal;
  }
  for (const text::AddedToken& added : spec.added) {
    if (added.single_word || added.lstrip || added.rstrip)
      fail(ErrorKind::usage,
           "{}: --format gguf: the added token '{}' has single_word, lstrip or rstrip, which "
           "llama.cpp does not have. Export with --format hf instead",
           where, added.content);
    tokens.at(added.id) = added.content;
    types.at(added.id) = added_type(spec, added);
  }
  values.texts("tokenizer.ggml.tokens", tokens);
  values.numbers("tokenizer.ggml.token_type", types);
  return tokens;
}

void put_merges(const text::TokenizerSpec& spec, const std::vector<std::string>& tokens,
                GgufValues& values) {
  std::vector<std::string> merges;
  for (const text::MergeRule& merge : spec.merges)
    merges.push_back(cat(tokens.at(merge.left), " ", tokens.at(merge.right)));
  values.texts("tokenizer.ggml.merges", merges);
}

void put_special_tokens(const std::map<std::string, std::string>& files,
                        const text::TokenizerSpec& spec, const std::string& where,
                        GgufValues& values) {
  const SpecialTokenIds ids = special_token_ids(files);
  const auto first_of = [&](const char* role) -> std::optional<std::uint32_t> {
    const auto found = ids.find(role);
    if (found == ids.end() || found->second.empty()) return std::nullopt;
    return static_cast<std::uint32_t>(found->second.front());
  };
  const auto prefix = added_id(spec.prefix_ids, "beginning", where);
  const auto suffix = added_id(spec.suffix_ids, "end", where);
  const auto put = [&](std::string_view key, std::optional<std::uint32_t> id) {
    if (id) values.number(key, *id);
  };
  put("tokenizer.ggml.bos_token_id", prefix ? prefix : first_of("bos"));
  put("tokenizer.ggml.eos_token_id", suffix ? suffix : first_of("eos"));
  put("tokenizer.ggml.padding_token_id", first_of("pad"));
  values.flag("tokenizer.ggml.add_bos_token", prefix.has_value());
  values.flag("tokenizer.ggml.add_eos_token", suffix.has_value());
}

}  // namespace

void put_gguf_tokenizer(const std::map<std::string, std::string>& files, std::int64_t vocab_size,
                        const std::string& where, GgufValues& values) {
  const auto file = files.find("tokenizer.json");
  if (file == files.end())
    fail(
        ErrorKind::usage,
        "{}: --format gguf: the model has no tokenizer.json, and a GGUF file contains the tokenizer. "
        "Export with --format hf, add the tokenizer to that directory, and export the directory",
        where);
  const text::TokenizerSpec spec = text::parse_tokenizer_json(file->second, where);
  if (std::int64_t{spec.vocab_size} > vocab_size)
    fail(ErrorKind::data, "{}: the tokenizer has {} ids, but the embedding has {} rows", where,
         spec.vocab_size, vocab_size);
  // Few texts are not in NFC, but NFKC changes usual characters such as full-width letters.
  const bool keeps_texts = spec.normalizer.is_identity() || spec.normalizer.is_nfc();
  if (!spec.pieces && !keeps_texts)
    fail(ErrorKind::usage,
         "{}: --format gguf: llama.cpp does not have the normalizer of this tokenizer. Export with "
         "--format hf instead",
         where);
  values.text("tokenizer.ggml.model", spec.pieces ? "llama" : "gpt2");
  values.text("tokenizer.ggml.pre", spec.pieces ? "default" : pre_tokenizer_name(spec, where));
  const std::vector<std::string> tokens = put_tokens(spec, vocab_size, where, values);
  if (spec.pieces)
    put_gguf_pieces(spec, tokens, where, values);
  else
    put_merges(spec, tokens, values);
  put_special_tokens(files, spec, where, values);
  if (const std::string chat = jinja_of(files); !chat.empty())
    values.text("tokenizer.chat_template", chat);
}

}  // namespace trireme::checkpoint
