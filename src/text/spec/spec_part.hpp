#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/spec/tokenizer_spec.hpp"

/// Shared by the readers of tokenizer.json; include it only in the spec_*.cpp files.
namespace trireme::text::spec {

/// One object of the file, with its path for error messages.
class Part {
 public:
  Part(const SortedJson& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value_.is_object())
      fail(ErrorKind::data, "{} is {}, must be an object", where_, value_.type_name());
  }

  [[nodiscard]] const std::string& where() const { return where_; }

  /// Returns null if the key is absent.
  [[nodiscard]] const SortedJson& at(const char* key) const {
    static const SortedJson null;
    const auto found = value_.find(key);
    return found == value_.end() ? null : *found;
  }

  [[nodiscard]] Part part(const char* key) const {
    return {at(key), formatted("{}.{}", where_, key)};
  }

  [[nodiscard]] std::string text(const char* key) const {
    if (!at(key).is_string())
      fail(ErrorKind::data, "{}.{} is {}, must be a string", where_, key, at(key).type_name());
    return at(key).get<std::string>();
  }

  [[nodiscard]] bool flag(const char* key, bool otherwise) const {
    if (at(key).is_null()) return otherwise;
    if (!at(key).is_boolean()) fail(ErrorKind::data, "{}.{} is not true or false", where_, key);
    return at(key).get<bool>();
  }

  [[nodiscard]] const SortedJson& array(const char* key) const {
    if (!at(key).is_array())
      fail(ErrorKind::data, "{}.{} is {}, must be an array", where_, key, at(key).type_name());
    return at(key);
  }

  /// Refuses every value except null (and the empty string if `empty_is_unset`).
  void must_be_unset(const char* key, bool empty_is_unset = false) const {
    const SortedJson& value = at(key);
    if (value.is_null() ||
        (empty_is_unset && value.is_string() && value.get_ref<const std::string&>().empty()))
      return;
    fail(ErrorKind::data, "{}.{} = {}: not supported, must be null", where_, key,
         value.dump(-1, ' ', false, SortedJson::error_handler_t::replace).substr(0, 80));
  }

 private:
  const SortedJson& value_;
  std::string where_;
};

[[noreturn]] inline void unsupported(const Part& part, std::string_view type,
                                     std::string_view supported) {
  fail(ErrorKind::data, "{} of type '{}' is not supported; supported: {}", part.where(), type,
       supported);
}

inline std::uint32_t read_id(const SortedJson& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxTokenId) {
    fail(ErrorKind::data, "{} = {}, must be an integer from 0 to {}", where,
         value.dump(-1, ' ', false, SortedJson::error_handler_t::replace).substr(0, 80),
         kMaxTokenId);
  }
  return value.get<std::uint32_t>();
}

// Each function reads one part of the file into `spec`. Throws Error(data) that names the path.
void read_model(const Part& model, TokenizerSpec& spec);
void read_added_tokens(const SortedJson& list, const std::string& where, TokenizerSpec& spec);
void read_normalizer(const SortedJson& value, const std::string& where, TokenizerSpec& spec);
void read_pre_tokenizer(const SortedJson& value, const std::string& where, TokenizerSpec& spec);
void read_post_processor(const SortedJson& value, const std::string& where, TokenizerSpec& spec);
void check_decoder(const SortedJson& value, const std::string& where);

// These functions read models of SentencePiece (spec_pieces.cpp).

/// Returns true if the file describes a model of SentencePiece instead of byte-level BPE.
bool has_pieces(const Part& root);
void read_piece_model(const Part& model, TokenizerSpec& spec);
void read_piece_normalizer(const SortedJson& value, const std::string& where, TokenizerSpec& spec);
void read_piece_pre_tokenizer(const SortedJson& value, const std::string& where,
                              TokenizerSpec& spec);
void read_piece_decoder(const SortedJson& value, const std::string& where, TokenizerSpec& spec);

// Shared by both readers.
void read_vocab_object(const Part& model, TokenizerSpec& spec);
void read_merges(const Part& model, TokenizerSpec& spec);

constexpr int kMaxDepth = 8;  // maximum nesting of Sequence

/// Calls `each` for the steps of a possibly nested Sequence, in order. Null has no steps.
template <class Each>
void for_each_step(const SortedJson& value, const std::string& where, const char* list,
                   const Each& each, int depth = 0) {
  if (value.is_null()) return;
  const Part part(value, where);
  const std::string type = part.text("type");
  if (type != "Sequence") return each(part, type);
  if (depth == kMaxDepth)
    fail(ErrorKind::data, "{} is a Sequence nested more than {} levels deep", where, kMaxDepth);
  for (const SortedJson& inner : part.array(list))
    for_each_step(inner, formatted("{}.{}[]", where, list), list, each, depth + 1);
}

}  // namespace trireme::text::spec
