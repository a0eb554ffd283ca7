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

/// Turns lines of one kind into documents of tokens. Each thread has its own.
class DocumentMaker {
 public:
  explicit DocumentMaker(Tokenizer tokenizer);
  virtual ~DocumentMaker() = default;
  DocumentMaker(const DocumentMaker&) = delete;
  DocumentMaker& operator=(const DocumentMaker&) = delete;
  DocumentMaker(DocumentMaker&&) = delete;
  DocumentMaker& operator=(DocumentMaker&&) = delete;

  /// Adds what the line of input `file` gives to `result`: documents, or an entry among the bad
  /// lines, or a count. Sets result.fatal for bad text under OnBadText::error.
  virtual void take(const Line& line, std::uint32_t file, ChunkResult& result) = 0;

 protected:
  [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

  /// True if the line is a record; else it has been counted.
  static bool is_record(const TextRecord& record, const Line& line, std::uint32_t file,
                        ChunkResult& result);
  static void add_bad(const Line& line, std::uint32_t file, std::string reason,
                      ChunkResult& result);

  /// Counts the fields of a record that were not read.
  static void add_ignored(const std::vector<UnreadField>& fields, const Line& line,
                          std::uint32_t file, ChunkResult& result);

  /// Adds tokens of the document that is being made.
  void add_tokens(std::span<const std::uint32_t> ids, ChunkResult& result) const;
  /// Ends the document: `num_tokens` were added since the one before.
  static void end_document(const Line& line, std::uint64_t num_tokens, std::uint64_t text_hash,
                           ChunkResult& result);

 private:
  Tokenizer tokenizer_;
  std::size_t width_;
};

/// For the kind that the rules say. They must outlive it.
std::unique_ptr<DocumentMaker> make_document_maker(const Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

/// Warns of markers that the template writes and the tokenizer does not know as tokens.
void warn_of_unknown_markers(const DocumentConfig& config, const Tokenizer& tokenizer);

}  // namespace trireme
