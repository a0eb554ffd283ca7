#include <algorithm>
#include <optional>
#include <unordered_set>

#include "text/spec/spec_part.hpp"
#include "text/unicode/byte_level.hpp"

namespace trireme::text::spec {
namespace {

void check_bytes(const Part& model, const TokenizerSpec& spec) {
  const std::string where = model.where() + ".vocab";
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = to_byte_level(std::string(1, static_cast<char>(byte)));
    if (spec.vocab.contains(token)) continue;
    fail(ErrorKind::data,
         "{}: no token for byte {} ('{}'), so this is not a complete byte-level model", where, byte,
         token);
  }
}

/// Reads both forms: ["a", "b"] and the older "a b".
std::pair<std::string, std::string> read_merge(const SortedJson& merge, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& line = merge.get_ref<const std::string&>();
    const std::size_t space = line.find(' ');
    if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos) {
      return {line.substr(0, space), line.substr(space + 1)};
    }
  }
  fail(ErrorKind::data, "{} must be two tokens: [\"a\", \"b\"] or \"a b\"", where);
}

AddedToken read_added_token(const Part& part) {
  AddedToken token{.content = part.text("content"),
                   .single_word = part.flag("single_word", false),
                   .lstrip = part.flag("lstrip", false),
                   .rstrip = part.flag("rstrip", false),
                   .normalized = part.flag("normalized", true),
                   .special = part.flag("special", false)};
  if (token.content.size() > kMaxAddedTokenBytes) {
    fail(ErrorKind::data, "{}.content has {} bytes, must have at most {}", part.where(),
         token.content.size(), kMaxAddedTokenBytes);
  }
  return token;
}

}  // namespace

void read_vocab_object(const Part& model, TokenizerSpec& spec) {
  const SortedJson& vocab = model.at("vocab");
  const std::string where = model.where() + ".vocab";
  if (!vocab.is_object())
    fail(ErrorKind::data, "{} is {}, must be an object of token: id", where, vocab.type_name());
  spec.vocab.reserve(vocab.size());
  std::unordered_set<std::uint32_t> ids;
  ids.reserve(vocab.size());
  for (const auto& [token, value] : vocab.items()) {
    const std::uint32_t id = read_id(value, formatted("{}['{}']", where, token));
    if (!ids.insert(id).second)
      fail(ErrorKind::data, "{}: two tokens have the id {}, one is '{}'", where, id, token);
    spec.vocab.emplace(token, id);
    spec.vocab_size = std::max(spec.vocab_size, id + 1);
  }
}

void read_merges(const Part& model, TokenizerSpec& spec) {
  const SortedJson& merges = model.array("merges");
  if (merges.size() > kMaxTokenId)
    fail(ErrorKind::data, "{}.merges has {} entries, must have at most {}", model.where(),
         merges.size(), kMaxTokenId);
  spec.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    if (merges[i].is_string() && merges[i].get_ref<const std::string&>().starts_with("#version"))
      continue;
    const std::string where = formatted("{}.merges[{}]", model.where(), i);
    const auto [left, right] = read_merge(merges[i], where);
    const auto id_of = [&](const std::string& token) {
      const auto found = spec.vocab.find(token);
      if (found == spec.vocab.end())
        fail(ErrorKind::data, "{}: token '{}' is not in the vocabulary", where, token);
      return found->second;
    };
    if (left.empty() || right.empty()) fail(ErrorKind::data, "{} has an empty part", where);
    spec.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
}

void read_model(const Part& model, TokenizerSpec& spec) {
  // Files written before version 0.10 have no type. Only BPE has merges.
  const std::string type =
      model.at("type").is_null() && model.at("merges").is_array() ? "BPE" : model.text("type");
  if (type != "BPE") unsupported(model, type, "BPE");
  const SortedJson& dropout = model.at("dropout");
  if (!dropout.is_number() || dropout.get<double>() != 0) model.must_be_unset("dropout");
  model.must_be_unset("continuing_subword_prefix", true);
  model.must_be_unset("end_of_word_suffix", true);
  spec.ignore_merges = model.flag("ignore_merges", false);
  // unk_token, fuse_unk and byte_fallback have no effect, because every byte has a token (checked
  // by check_bytes).
  read_vocab_object(model, spec);
  check_bytes(model, spec);
  read_merges(model, spec);
}

void read_added_tokens(const SortedJson& list, const std::string& where, TokenizerSpec& spec) {
  if (list.is_null()) return;
  if (!list.is_array())
    fail(ErrorKind::data, "{} is {}, must be an array", where, list.type_name());
  const auto model_size = static_cast<std::uint32_t>(spec.vocab.size());
  std::optional<std::uint32_t> highest;
  std::unordered_map<std::string, std::size_t> position;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Part part(list[i], formatted("{}[{}]", where, i));
    AddedToken token = read_added_token(part);
    if (token.content.empty()) continue;
    const auto known = position.find(token.content);
    const auto in_model = spec.vocab.find(token.content);
    if (in_model != spec.vocab.end()) {
      token.id = in_model->second;
    } else if (known != position.end()) {
      token.id = spec.added[known->second].id;
    } else {
      token.id = highest && *highest >= model_size ? *highest + 1 : model_size;
    }
    if (const std::uint32_t asked = read_id(part.at("id"), part.where() + ".id");
        asked != token.id) {
      fail(
          ErrorKind::data,
          "{} ('{}') has id {}, but Hugging Face tokenizers gives it {} (the model's own id, else the next free one). Correct the file.",
          part.where(), token.content, asked, token.id);
    }
    // Tokens of the model do not count, even if gaps in the vocabulary give them ids above its
    // size.
    if (in_model == spec.vocab.end()) highest = std::max(highest.value_or(0), token.id);
    spec.vocab_size = std::max(spec.vocab_size, token.id + 1);
    if (known == position.end()) {
      position.emplace(token.content, spec.added.size());
      spec.added.push_back(std::move(token));
    } else {  // later properties replace earlier ones, except that a special token stays special
      token.special = token.special || spec.added[known->second].special;
      spec.added[known->second] = std::move(token);
    }
  }
}

}  // namespace trireme::text::spec
