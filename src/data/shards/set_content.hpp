#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/shards/targets.hpp"

/// The table of the contents of data sets. Each row has the name of the first kind with this
/// content; later kinds name that row (ShardMeta::stored_as). The writer, the reader, `pack`,
/// `inspect` and the training samples use this table. RecordKind (text/chat) describes the records
/// that `pack` reads for a kind.
namespace trireme::data {

/// The data that a shard stores beside the tokens of its documents: targets, and the records of
/// prompts. Only the members that the kind of the shard needs are set.
struct DocumentTargets {
  SpanTable loss;
  PairTable pairs;
  TextTable records;

  void append(const DocumentTargets& other);
};

/// A dataset of the shard with one number per document: u32 [D].
struct NumberColumn {
  const char* name;  // "/pair/prompt_len"
  const std::vector<std::uint32_t>& (*of)(const DocumentTargets& targets);
};

/// Two datasets of the shard with the target spans of each document.
struct SpanColumn {
  const char* ptr;   // u64 [D+1]
  const char* span;  // u32 [S, 2]
  const SpanTable& (*of)(const DocumentTargets& targets);
};

/// Two datasets of the shard with one text per document.
struct TextColumn {
  const char* ptr;    // u64 [D+1]
  const char* bytes;  // u8
  const TextTable& (*of)(const DocumentTargets& targets);
};

/// The form of one training sample.
enum class SampleForm {
  sequence,  // parts of documents, packed to one length
  pair,      // one document with two sides
  answer,    // one document with two sides: an answer after its prompt, and the prompt alone
  prompt,    // one document that a model continues
};

struct SetContent {
  std::string_view name;      // name in `pack --kind`, the manifest and the shards
  std::string_view document;  // noun of a document for messages: "conversation"
  SampleForm sample = SampleForm::sequence;
  // pairs: returns true if a run can train on a cut pair, like keeps_targets
  decltype(&keeps_targets) keeps = nullptr;
  std::span<const NumberColumn> numbers = {};
  std::span<const SpanColumn> spans = {};
  std::span<const TextColumn> texts = {};

  /// Returns true if a mask selects the targets, false if every token is a target.
  [[nodiscard]] constexpr bool is_masked() const { return !spans.empty(); }

  /// Returns true if `pack` prepares sequences of documents for the sequence length.
  [[nodiscard]] constexpr bool has_sequences() const { return sample == SampleForm::sequence; }

  /// Returns true if the documents are prompts, which have no targets.
  [[nodiscard]] constexpr bool has_prompts() const { return sample == SampleForm::prompt; }

  /// Returns true if a document has two sides with a common prompt.
  [[nodiscard]] constexpr bool has_pairs() const { return !has_sequences() && !has_prompts(); }
};

/// Returns all rows.
std::span<const SetContent> set_contents();

/// Returns the row with the name `stored_as`, or, if that is empty, with the name `kind`. For an
/// unknown name, returns the row of texts. A set of an unknown kind can be inspected, but no command
/// trains on it (require_kind).
const SetContent& set_content(std::string_view kind, std::string_view stored_as = "");

}  // namespace trireme::data
