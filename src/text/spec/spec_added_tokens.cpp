#include <algorithm>
#include <optional>

#include "text/spec/spec_part.hpp"

namespace trireme::spec {
namespace {

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

}  // namespace trireme::spec
