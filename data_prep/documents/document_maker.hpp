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
  DocumentMaker(DocumentMaker&&) = delete;
  DocumentMaker& operator=(DocumentMaker&&) = delete;

  /// Adds what the record gives to `result`: documents, or an entry among the bad lines, or a count.
  /// Sets result.fatal for bad text under OnBadText::error.
  virtual void take(const Record& record, ChunkResult& result) = 0;

 protected:
  [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

  /// Returns true if `text` was read of the record; else the record has been counted.
  static bool is_text(const TextRecord& text, const Record& record, ChunkResult& result);
  static void add_bad(const Record& record, std::string reason, ChunkResult& result);

  /// Counts the fields of a record that were not read.
  static void add_ignored(const std::vector<UnreadField>& fields, const Record& record,
                          ChunkResult& result);

  /// Adds tokens of the document that is being made.
  void add_tokens(std::span<const std::uint32_t> ids, ChunkResult& result) const;
  /// Ends the document: `num_tokens` were added since the one before.
  static void end_document(const Record& record, std::uint64_t num_tokens, std::uint64_t text_hash,
                           ChunkResult& result);

 private:
  Tokenizer tokenizer_;
  std::size_t width_;
};

/// For the kind that the rules say. They must outlive it.
std::unique_ptr<DocumentMaker> make_document_maker(const Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

/// The one of conversations and preference pairs: chats that a template renders, with the tokens
/// that are targets.
///
/// A conversation of more than seq_len tokens loses those at its end. The prompt of a pair is the
/// longest run of tokens that both sides begin with. If a side has more than seq_len tokens, the
/// pair is cut by the rule of --cut-pairs (cut_pair). A conversation without a target left is
/// dropped. A pair is dropped if its sides are equal or if keeps_targets refuses it.
std::unique_ptr<DocumentMaker> make_chat_documents(const Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

/// Warns of markers that the template writes and the tokenizer does not know as tokens.
void warn_of_unknown_markers(const DocumentConfig& config, const Tokenizer& tokenizer);

}  // namespace trireme
