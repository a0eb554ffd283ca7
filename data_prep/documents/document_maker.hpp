#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/shards/shard_writer.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/documents/jsonl_record.hpp"
#include "text/json/unread_field.hpp"
#include "text/tokenizer.hpp"

namespace trireme::data_prep {

/// Maximum number of invalid records that a shard lists; all are counted.
inline constexpr std::size_t kMaxInvalidListed = 1000;

struct InvalidRecord {
  std::uint32_t source = 0;    // index of the input in the list of the shard
  std::uint64_t position = 0;  // position of the record in the input
  std::string reason;
};

/// A field in records that pack does not read.
struct IgnoredField {
  std::uint64_t records = 0;    // number of records in which the field is not empty
  std::uint64_t with_text = 0;  // number of records in which it contains a text
  std::uint32_t source = 0;     // input of the first record in which it contains a text
  std::uint64_t position = 0;

  void add(const IgnoredField& later) {
    if (with_text == 0 && later.with_text != 0) {
      source = later.source;
      position = later.position;
    }
    records += later.records;
    with_text += later.with_text;
  }
};

/// The documents of one chunk of an input in order, and the counts of its other records.
struct ChunkResult {
  std::uint32_t file = 0;    // index of the input
  std::uint32_t source = 0;  // index of that input in the list of the shard
  data::DocumentColumns documents;
  std::vector<InvalidRecord> bad;
  std::map<std::string, IgnoredField> ignored;  // key: name
  std::uint64_t num_records = 0;                // number of processed records
  std::uint64_t hash = 0;
  std::optional<InvalidRecord> fatal;
};

/// Turns records of one kind into documents of tokens. Each thread has its own.
class DocumentMaker {
 public:
  explicit DocumentMaker(text::Tokenizer tokenizer);
  virtual ~DocumentMaker() = default;
  DocumentMaker(const DocumentMaker&) = delete;
  DocumentMaker& operator=(const DocumentMaker&) = delete;

  /// Adds the documents of a record to `result`, or an entry in the list of invalid records, or a
  /// count. Sets result.fatal for bad text under OnBadText::error, and for a record that has another
  /// form than its input under --format auto.
  virtual void take(const Record& record, ChunkResult& result) = 0;

 protected:
  [[nodiscard]] const text::Tokenizer& tokenizer() const noexcept { return tokenizer_; }

  /// Returns true if the record has a text; otherwise the record has already been counted.
  static bool is_text(const TextRecord& text, const Record& record, ChunkResult& result);
  static void add_bad(const Record& record, std::string reason, ChunkResult& result);

  /// Counts the fields of a record that were not read.
  static void add_ignored(const std::vector<text::UnreadField>& fields, const Record& record,
                          ChunkResult& result);

  /// Appends tokens to the current document.
  void add_tokens(std::span<const std::uint32_t> ids, ChunkResult& result) const;
  /// Ends the document; `num_tokens` is the number of tokens added since the previous document.
  static void end_document(const Record& record, std::uint64_t num_tokens, std::uint64_t text_hash,
                           ChunkResult& result);

 private:
  text::Tokenizer tokenizer_;
  std::size_t width_;
};

/// Creates the maker for the kind in `rules`, which must outlive the maker.
std::unique_ptr<DocumentMaker> make_document_maker(const text::Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

/// Creates the maker for conversations and preference pairs: chats that a template renders, with
/// their target tokens.
///
/// A conversation of more than seq_len tokens loses its end. The prompt of a pair is the longest
/// common prefix of both sides. If a side has more than seq_len tokens, the pair is cut by the rule
/// of --cut-pairs (cut_pair). A conversation without a remaining target is dropped. A pair is
/// dropped if its sides are equal or if keeps_targets refuses it.
std::unique_ptr<DocumentMaker> make_chat_documents(const text::Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

/// Creates the maker for prompts of reinforcement learning: the messages before the last answer, as
/// the template renders them with the header of the next answer, and the record as JSON. A prompt of
/// more than seq_len tokens is dropped, because a cut one would lose its question.
std::unique_ptr<DocumentMaker> make_prompt_documents(const text::Tokenizer& tokenizer,
                                                     const DocumentRules& rules);

/// Warns if the template writes markers that are not tokens of the tokenizer.
void warn_of_unknown_markers(const DocumentConfig& config, const text::Tokenizer& tokenizer);

}  // namespace trireme::data_prep
