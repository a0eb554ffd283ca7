#pragma once
#include <cstdint>
#include <string>

#include "data/shards/token_set.hpp"

namespace trireme {

/// A document of a set.
struct DocumentPlace {
  std::size_t shard = 0;
  std::uint64_t doc = 0;
};

/// The first document made from line `line` (from 0) of the set's first input. Throws Error(usage)
/// if there is no such line, it gave no document, or the set does not say.
DocumentPlace find_line(const TokenSet& set, std::uint64_t line);

/// Document `index` of the whole set. Throws Error(usage) if it has fewer.
DocumentPlace find_document(const TokenSet& set, std::uint64_t index);

/// {"source", "offset", "ids", "text", "target"}; of a pair {"source", "offset", "prompt_len",
/// "chosen": {"ids", "text", "target"}, "rejected": {...}}. `text` is decoded, target is 0 or 1 for
/// each id: whether it is trained.
std::string document_json(const TokenSet& set, const DocumentPlace& place);

/// The document's text for people, runs of targets between [[ and ]], cut after `max_tokens`.
std::string document_text(const TokenSet& set, const DocumentPlace& place, std::size_t max_tokens);

}  // namespace trireme
