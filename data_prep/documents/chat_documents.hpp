#pragma once
#include <memory>

#include "data_prep/documents/document_maker.hpp"

namespace trireme {

/// Kinds sft and dpo: conversations rendered by a template, with the tokens that are targets.
///
/// sft: a conversation of more than seq_len tokens loses those at its end.
/// dpo: the prompt is the longest run of tokens that both sides begin with; if prompt and longer
/// answer have more than seq_len tokens, the prompt loses the tokens at its beginning, the same on
/// both sides and all but its last; a side that is still too long then loses its end.
/// What has no target left, on either side of a pair, is dropped; so is a pair of equal sides.
std::unique_ptr<DocumentMaker> make_chat_documents(const Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

}  // namespace trireme
