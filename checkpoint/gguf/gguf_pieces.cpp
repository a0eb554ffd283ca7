#include "checkpoint/gguf/gguf_pieces.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "core/error.hpp"
#include "core/log.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kSpace = "\u2581";

bool has_space(const text::AddedToken& added) {
  return added.content.find(kSpace) != std::string::npos;
}

[[noreturn]] void refuse(const std::string& where, const std::string& problem) {
  fail(ErrorKind::usage, "{}: --format gguf: {}. Export with --format hf instead", where, problem);
}

/// Returns true if the tokenizer puts a space before a text. Throws Error(usage) for other
/// changes of texts than those of llama.cpp: spaces become U+2581.
bool adds_space(const text::TokenizerSpec& spec, const std::string& where) {
  using Step = text::NormalizerStep;
  using text::PieceStep;
  bool prepends = false;
  bool replaces = false;
  for (const Step& step : spec.normalizer.steps()) {
    if (step.kind == Step::Kind::prepend && step.to == kSpace && !prepends && !replaces)
      prepends = true;
    else if (step.kind == Step::Kind::replace && step.from == " " && step.to == kSpace)
      replaces = true;
    else
      refuse(where, "llama.cpp does not have the normalizer of this tokenizer");
  }
  for (const PieceStep& step : spec.pieces->steps) {
    const bool never_splits =
        replaces && step.kind == PieceStep::Kind::split_text && step.text == " ";
    if (never_splits) continue;
    if (step.kind != PieceStep::Kind::metaspace || step.split || step.text != kSpace || replaces)
      refuse(where, "llama.cpp does not have the pre-tokenizer of this tokenizer");
    replaces = true;
    if (step.prepend == PieceStep::Prepend::never) continue;
    prepends = true;
    log::warn(
        "--format gguf: llama.cpp also adds a space before a text that begins with a space or that "
        "follows a special token. This tokenizer does not, so such texts get other ids");
  }
  if (!replaces) refuse(where, "the tokenizer does not replace spaces by U+2581");
  return prepends;
}

void check_bytes(const text::TokenizerSpec& spec, const std::string& where) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = text::byte_token_name(static_cast<std::uint8_t>(byte));
    const bool is_character =
        byte < 0x80 && spec.vocab.contains(std::string(1, static_cast<char>(byte)));
    if (!spec.vocab.contains(name) && !is_character)
      refuse(where, formatted("the tokenizer has no token {}, and llama.cpp needs a token for "
                              "each byte",
                              name));
  }
}

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32U | right;
}

/// Returns true if `token` repeats its first character.
bool is_run(std::string_view token) {
  std::size_t length = 1;
  while (length < token.size() && !text::begins_character(token[length])) ++length;
  if (token.size() % length != 0) return false;
  for (std::size_t at = length; at < token.size(); at += length)
    if (token.substr(at, length) != token.substr(0, length)) return false;
  return true;
}

/// Throws Error(usage) if llama.cpp joins two symbols that the tokenizer has no merge for.
void check_splits(const text::TokenizerSpec& spec, const std::unordered_set<std::uint32_t>& cut,
                  const std::string& where) {
  std::unordered_set<std::uint64_t> merges;
  for (const text::MergeRule& merge : spec.merges) merges.insert(pair_key(merge.left, merge.right));
  const auto symbol = [&](const std::string& part) -> std::optional<std::uint32_t> {
    const auto found = spec.vocab.find(part);
    if (found != spec.vocab.end() && !cut.contains(found->second)) return found->second;
    if (text::utf8_length(part) == 1) return std::numeric_limits<std::uint32_t>::max();
    return std::nullopt;
  };
  for (const auto& [token, id] : spec.vocab) {
    if (cut.contains(id)) continue;
    for (std::size_t at = 1; at < token.size(); ++at) {
      if (!text::begins_character(token[at])) continue;
      const auto left = symbol(token.substr(0, at));
      const auto right = symbol(token.substr(at));
      if (left && right && !merges.contains(pair_key(*left, *right)))
        refuse(where, formatted("llama.cpp would merge '{}' and '{}', but the tokenizer does not",
                                token.substr(0, at), token.substr(at)));
    }
  }
}

/// Returns the tokens that have merges with ranks between which another token has a merge.
std::unordered_set<std::uint32_t> interrupted(const text::TokenizerSpec& spec) {
  std::unordered_set<std::uint32_t> seen;
  std::unordered_set<std::uint32_t> found;
  std::optional<std::uint32_t> last;
  for (const text::MergeRule& merge : spec.merges) {
    if (last == merge.result) continue;
    last = merge.result;
    if (!seen.insert(merge.result).second) found.insert(merge.result);
  }
  return found;
}

/// Returns the score of each token. Throws Error(usage) if scores cannot have the order of merges.
std::vector<float> scores(const text::TokenizerSpec& spec, const std::vector<std::string>& tokens,
                          const std::unordered_set<std::uint32_t>& cut, const std::string& where) {
  std::vector<float> result(tokens.size(), -static_cast<float>(spec.merges.size()));
  std::unordered_set<std::uint32_t> done;
  std::unordered_map<std::uint32_t, std::uint32_t> shorter;  // from a run to the run before it
  const std::unordered_set<std::uint32_t> mixed = interrupted(spec);
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const text::MergeRule& merge = spec.merges[rank];
    if (mixed.contains(merge.result) && !cut.contains(merge.result)) {
      // A run that grows from its left end uses only the merges with one more character.
      if (!is_run(tokens[merge.result]))
        refuse(where, formatted("the merges of the token '{}' do not have adjacent ranks",
                                tokens[merge.result]));
      if (text::utf8_length(tokens[merge.right]) != 1) continue;
      shorter[merge.result] = merge.left;
    }
    if (done.insert(merge.result).second) result[merge.result] = -static_cast<float>(rank);
  }
  for (const std::uint32_t id : mixed) {
    if (cut.contains(id)) continue;
    const auto left = shorter.find(id);
    const bool grows =
        left != shorter.end() && result[id] > result[left->second] &&
        (mixed.contains(left->second) || text::utf8_length(tokens[left->second]) == 2);
    if (!grows)
      refuse(where,
             formatted("the merges of the token '{}' do not have adjacent ranks", tokens[id]));
  }
  return result;
}

}  // namespace

bool is_cut_out(const text::AddedToken& added) {
  return added.special || !has_space(added);
}

void put_gguf_pieces(const text::TokenizerSpec& spec, const std::vector<std::string>& tokens,
                     const std::string& where, GgufValues& values) {
  const text::PieceSpec& pieces = *spec.pieces;
  if (pieces.unigram || !pieces.byte_fallback || spec.ignore_merges)
    refuse(where,
           formatted("llama.cpp does not have {}",
                     pieces.unigram       ? "this form of Unigram tokenizers"
                     : spec.ignore_merges ? "SentencePiece tokenizers with ignore_merges"
                                          : "SentencePiece tokenizers without byte_fallback"));
  const bool space = adds_space(spec, where);
  check_bytes(spec, where);
  std::unordered_set<std::uint32_t> cut;  // both programs cut these tokens out of a text first
  for (const text::AddedToken& added : spec.added) {
    const bool changes = has_space(added) || spec.normalizer.apply(added.content) != added.content;
    if (added.normalized && changes)
      refuse(where, formatted("the added token '{}' has normalized = true", added.content));
    if (is_cut_out(added)) cut.insert(added.id);
  }
  check_splits(spec, cut, where);
  values.reals("tokenizer.ggml.scores", scores(spec, tokens, cut, where));
  values.flag("tokenizer.ggml.add_space_prefix", space);
  if (pieces.unk_id) values.number("tokenizer.ggml.unknown_token_id", *pieces.unk_id);
}

}  // namespace trireme::checkpoint
