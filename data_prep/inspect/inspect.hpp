#pragma once
#include <string>

#include "data/shards/token_set.hpp"

namespace trireme {

/// Describes a set as one JSON object (keys kind, documents, tokens, target_tokens, bad_lines,
/// truncated, dropped and more, see docs/formats/token-set.md), or as a text for people that ends
/// with the first document. Reads the manifest and the document tables.
std::string inspect_json(const TokenSet& set);
std::string inspect_text(const TokenSet& set);

}  // namespace trireme
