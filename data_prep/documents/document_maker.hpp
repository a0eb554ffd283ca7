#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data_prep/documents/chunk_result.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/documents/jsonl_record.hpp"
#include "text/json/unread_field.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// Turns records of one kind into documents of tokens. Each thread has its own.
class DocumentMaker {
 public:
  explicit DocumentMaker(Tokenizer tokenizer);
  virtual ~DocumentMaker() = default;
  DocumentMaker(const DocumentMaker&) = delete;
  DocumentMaker& operator=(const DocumentMaker&) = delete;

  /// Adds the documents of a record to `result`, or an entry in the list of invalid records, or a
  /// count. Sets result.fatal for bad text under OnBadText::error.
  virtual void take(const Record& record, ChunkResult& result) = 0;

 protected:
  [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

  /// Returns true if the record has a text; otherwise the record has already been counted.
  static bool is_text(const TextRecord& text, const Record& record, ChunkResult& result);
  static void add_bad(const Record& record, std::string reason, ChunkResult& result);

  /// Counts the fields of a record that were not read.
  static void add_ignored(const std::vector<UnreadField>& fields, const Record& record,
                          ChunkResult& result);

  /// Appends tokens to the current document.
  void add_tokens(std::span<const std::uint32_t> ids, ChunkResult& result) const;
  /// Ends the document; `num_tokens` is the number of tokens added since the previous document.
  static void end_document(const Record& record, std::uint64_t num_tokens, std::uint64_t text_hash,
                           ChunkResult& result);

 private:
  Tokenizer tokenizer_;
  std::size_t width_;
};

/// Creates the maker for the kind in `rules`, which must outlive the maker.
std::unique_ptr<DocumentMaker> make_document_maker(const Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

/// Creates the maker for conversations and preference pairs: chats that a template renders, with
/// their target tokens.
///
/// A conversation of more than seq_len tokens loses its end. The prompt of a pair is the longest
/// common prefix of both sides. If a side has more than seq_len tokens, the pair is cut by the rule
/// of --cut-pairs (cut_pair). A conversation without a remaining target is dropped. A pair is
/// dropped if its sides are equal or if keeps_targets refuses it.
std::unique_ptr<DocumentMaker> make_chat_documents(const Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

/// Warns if the template writes markers that are not tokens of the tokenizer.
void warn_of_unknown_markers(const DocumentConfig& config, const Tokenizer& tokenizer);

}  // namespace trireme
