#include "text/tokenizer_spec.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "core/error.hpp"
#include "core/json.hpp"
#include "text/byte_level.hpp"

namespace trireme {
namespace {

/// One object of the file and its path in it, for errors.
class Part {
 public:
  Part(const SortedJson& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value_.is_object())
      fail(ErrorKind::data, where_, " is ", value_.type_name(), ", must be an object");
  }

  [[nodiscard]] const std::string& where() const { return where_; }

  /// Null if the key is absent.
  [[nodiscard]] const SortedJson& at(const char* key) const {
    static const SortedJson null;
    const auto found = value_.find(key);
    return found == value_.end() ? null : *found;
  }

  [[nodiscard]] Part part(const char* key) const { return {at(key), cat(where_, ".", key)}; }

  [[nodiscard]] std::string text(const char* key) const {
    if (!at(key).is_string())
      fail(ErrorKind::data, where_, ".", key, " is ", at(key).type_name(), ", must be a string");
    return at(key).get<std::string>();
  }

  [[nodiscard]] bool flag(const char* key, bool otherwise) const {
    if (at(key).is_null()) return otherwise;
    if (!at(key).is_boolean()) fail(ErrorKind::data, where_, ".", key, " is not true or false");
    return at(key).get<bool>();
  }

  [[nodiscard]] const SortedJson& array(const char* key) const {
    if (!at(key).is_array())
      fail(ErrorKind::data, where_, ".", key, " is ", at(key).type_name(), ", must be an array");
    return at(key);
  }

  /// Refuses any value but null (and, where allowed, the empty string).
  void must_be_unset(const char* key, bool empty_is_unset = false) const {
    const SortedJson& value = at(key);
    if (value.is_null() ||
        (empty_is_unset && value.is_string() && value.get_ref<const std::string&>().empty()))
      return;
    fail(ErrorKind::data,
         where_,
         ".",
         key,
         " = ",
         value.dump(-1, ' ', false, SortedJson::error_handler_t::replace).substr(0, 80),
         ": not supported, must be null");
  }

 private:
  const SortedJson& value_;
  std::string where_;
};

[[noreturn]] void unsupported(const Part& part, std::string_view type, std::string_view supported) {
  fail(ErrorKind::data,
       part.where(),
       " of type '",
       type,
       "' is not supported; supported: ",
       supported);
}

std::uint32_t read_id(const SortedJson& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxTokenId) {
    fail(ErrorKind::data,
         where,
         " = ",
         value.dump(-1, ' ', false, SortedJson::error_handler_t::replace).substr(0, 80),
         ", must be an integer from 0 to ",
         kMaxTokenId);
  }
  return value.get<std::uint32_t>();
}

void read_vocab(const Part& model, TokenizerSpec& spec) {
  const SortedJson& vocab = model.at("vocab");
  const std::string where = model.where() + ".vocab";
  if (!vocab.is_object())
    fail(ErrorKind::data, where, " is ", vocab.type_name(), ", must be an object of token: id");
  spec.vocab.reserve(vocab.size());
  std::unordered_set<std::uint32_t> ids;
  ids.reserve(vocab.size());
  for (const auto& [token, value] : vocab.items()) {
    const std::uint32_t id = read_id(value, cat(where, "['", token, "']"));
    if (!ids.insert(id).second)
      fail(ErrorKind::data, where, ": two tokens have the id ", id, ", one is '", token, "'");
    spec.vocab.emplace(token, id);
    spec.vocab_size = std::max(spec.vocab_size, id + 1);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = to_byte_level(std::string(1, static_cast<char>(byte)));
    if (spec.vocab.contains(token)) continue;
    fail(ErrorKind::data,
         where,
         ": no token for byte ",
         byte,
         " ('",
         token,
         "'), so this is not a complete byte-level model");
  }
}

/// Both forms: ["a", "b"] and the older "a b".
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
  fail(ErrorKind::data, where, " must be two tokens: [\"a\", \"b\"] or \"a b\"");
}

void read_merges(const Part& model, TokenizerSpec& spec) {
  const SortedJson& merges = model.array("merges");
  if (merges.size() > kMaxTokenId)
    fail(ErrorKind::data,
         model.where(),
         ".merges has ",
         merges.size(),
         " entries, at most ",
         kMaxTokenId);
  spec.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    if (merges[i].is_string() && merges[i].get_ref<const std::string&>().starts_with("#version"))
      continue;
    const std::string where = cat(model.where(), ".merges[", i, "]");
    const auto [left, right] = read_merge(merges[i], where);
    const auto id_of = [&](const std::string& token) {
      const auto found = spec.vocab.find(token);
      if (found == spec.vocab.end())
        fail(ErrorKind::data, where, ": token '", token, "' is not in the vocabulary");
      return found->second;
    };
    if (left.empty() || right.empty()) fail(ErrorKind::data, where, " has an empty part");
    spec.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
}

void read_model(const Part& model, TokenizerSpec& spec) {
  // Files written before 0.10 have no type; only BPE has merges.
  const std::string type =
      model.at("type").is_null() && model.at("merges").is_array() ? "BPE" : model.text("type");
  if (type != "BPE") unsupported(model, type, "BPE");
  const SortedJson& dropout = model.at("dropout");
  if (!dropout.is_number() || dropout.get<double>() != 0) model.must_be_unset("dropout");
  model.must_be_unset("continuing_subword_prefix", true);
  model.must_be_unset("end_of_word_suffix", true);
  spec.ignore_merges = model.flag("ignore_merges", false);
  // unk_token, fuse_unk and byte_fallback cannot fire: every byte has a token, which read_vocab
  // checks.
  read_vocab(model, spec);
  read_merges(model, spec);
}

AddedToken read_added_token(const Part& part) {
  AddedToken token{.content = part.text("content"),
                   .single_word = part.flag("single_word", false),
                   .lstrip = part.flag("lstrip", false),
                   .rstrip = part.flag("rstrip", false),
                   .normalized = part.flag("normalized", true),
                   .special = part.flag("special", false)};
  if (token.content.size() > kMaxAddedTokenBytes) {
    fail(ErrorKind::data,
         part.where(),
         ".content has ",
         token.content.size(),
         " bytes, at most ",
         kMaxAddedTokenBytes);
  }
  return token;
}

void read_added_tokens(const SortedJson& list, const std::string& where, TokenizerSpec& spec) {
  if (list.is_null()) return;
  if (!list.is_array())
    fail(ErrorKind::data, where, " is ", list.type_name(), ", must be an array");
  const auto model_size = static_cast<std::uint32_t>(spec.vocab.size());
  std::optional<std::uint32_t> highest;
  std::unordered_map<std::string, std::size_t> position;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Part part(list[i], cat(where, "[", i, "]"));
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
      fail(ErrorKind::data,
           part.where(),
           " ('",
           token.content,
           "') has id ",
           asked,
           ", but Hugging Face tokenizers gives it ",
           token.id,
           " (the model's own id, else the next free one); correct the file");
    }
    highest = std::max(highest.value_or(0), token.id);
    spec.vocab_size = std::max(spec.vocab_size, token.id + 1);
    if (known == position.end()) {
      position.emplace(token.content, spec.added.size());
      spec.added.push_back(std::move(token));
    } else {  // later properties replace earlier ones, but a token once special stays so
      token.special = token.special || spec.added[known->second].special;
      spec.added[known->second] = std::move(token);
    }
  }
}

void read_pre_tokenizer(const SortedJson& value, const std::string& where, TokenizerSpec& spec) {
  constexpr std::string_view kSupported = "ByteLevel";
  if (value.is_null()) fail(ErrorKind::data, where, " is null; supported: ", kSupported);
  const Part part(value, where);
  const std::string type = part.text("type");
  if (type != "ByteLevel") unsupported(part, type, kSupported);
  spec.add_prefix_space = part.flag("add_prefix_space", true);
  spec.split = part.flag("use_regex", true) ? SplitPattern::gpt2 : SplitPattern::none;
}

/// Only the form for one text is used: special tokens around $A.
void read_template(const Part& part, TokenizerSpec& spec) {
  const Part specials = part.part("special_tokens");
  bool after_text = false;
  for (const SortedJson& value : part.array("single")) {
    const Part piece(value, part.where() + ".single[]");
    if (!piece.at("Sequence").is_null()) {
      if (after_text || piece.part("Sequence").text("id") != "A")
        fail(ErrorKind::data, part.where(), ".single must contain $A once and no $B");
      after_text = true;
      continue;
    }
    const std::string name = piece.part("SpecialToken").text("id");
    for (const SortedJson& id : specials.part(name.c_str()).array("ids")) {
      const std::uint32_t token = read_id(id, cat(specials.where(), ".", name, ".ids"));
      (after_text ? spec.suffix_ids : spec.prefix_ids).push_back(token);
    }
  }
  if (!after_text) fail(ErrorKind::data, part.where(), ".single has no $A");
}

/// True if a template was read.
bool read_post_processor(const SortedJson& value,
                         const std::string& where,
                         int depth,
                         TokenizerSpec& spec) {
  if (value.is_null()) return false;
  const Part part(value, where);
  const std::string type = part.text("type");
  if (type == "ByteLevel") return false;  // moves offsets only
  if (type == "TemplateProcessing") {
    read_template(part, spec);
    return true;
  }
  if (type != "Sequence" || depth > 0)
    unsupported(part, type, "null, ByteLevel, TemplateProcessing, Sequence of these");
  bool found = false;
  for (const SortedJson& inner : part.array("processors")) {
    if (!read_post_processor(inner, where + ".processors[]", depth + 1, spec)) continue;
    if (found)
      fail(ErrorKind::data, where, " has two TemplateProcessing steps, at most one is supported");
    found = true;
  }
  return found;
}

void check_special_ids(const TokenizerSpec& spec, const std::string& where) {
  for (const auto* ids : {&spec.prefix_ids, &spec.suffix_ids}) {
    for (const std::uint32_t id : *ids) {
      if (id >= spec.vocab_size)
        fail(
            ErrorKind::data, where, ": id ", id, " is outside the vocabulary of ", spec.vocab_size);
    }
  }
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, std::string_view where) {
  const SortedJson json = parse_sorted_json(text, where, {.max_bytes = kMaxTokenizerFileBytes});
  const Part root(json, std::string(where) + ": tokenizer");
  if (root.text("version") != "1.0")
    fail(ErrorKind::data, root.where(), ".version = '", root.text("version"), "', must be '1.0'");
  root.must_be_unset("truncation");
  root.must_be_unset("padding");
  root.must_be_unset("normalizer");
  const Part decoder = root.part("decoder");
  if (decoder.text("type") != "ByteLevel") unsupported(decoder, decoder.text("type"), "ByteLevel");

  TokenizerSpec spec;
  read_model(root.part("model"), spec);
  read_added_tokens(root.at("added_tokens"), root.where() + ".added_tokens", spec);
  read_pre_tokenizer(root.at("pre_tokenizer"), root.where() + ".pre_tokenizer", spec);
  read_post_processor(root.at("post_processor"), root.where() + ".post_processor", 0, spec);
  check_special_ids(spec, root.where() + ".post_processor");
  return spec;
}

}  // namespace trireme
