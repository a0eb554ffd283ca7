#pragma once
#include <cstdint>
#include <string>

#include "data/shards/token_set.hpp"

namespace trireme::data_prep {

/// The position of a document in a set.
struct DocumentLocation {
  std::size_t shard = 0;
  std::uint64_t doc = 0;
};

/// Finds the first document made from line `line` (from 0) of the first input. Throws Error(usage)
/// if there is no such line, if it gave no document, or if the set has no line numbers.
DocumentLocation find_line(const data::TokenSet& set, std::uint64_t line);

/// Finds document `index` of the whole set. Throws Error(usage) if the set has fewer documents.
DocumentLocation find_document(const data::TokenSet& set, std::uint64_t index);

/// Returns {"source", "offset", "ids", "text", "target"}; for a preference pair {"source",
/// "offset", "prompt_len", "chosen": {"ids", "text", "target"}, "rejected": {...}}. `text` is
/// decoded; `target` has 1 for each trained id, else 0.
std::string document_json(const data::TokenSet& set, const DocumentLocation& place);

/// Returns the text of the document for people, with targets between [[ and ]], cut after
/// `max_tokens`.
std::string document_text(const data::TokenSet& set, const DocumentLocation& place,
                          std::size_t max_tokens);

}  // namespace trireme::data_prep
