#pragma once
#include <memory>

#include "data_prep/documents/document_maker.hpp"

namespace trireme {

/// Kinds sft and dpo: conversations rendered by a template, with the tokens that are targets.
///
/// sft: a conversation of more than seq_len tokens loses those at its end.
/// dpo: the prompt is the longest run of tokens that both sides begin with; a pair of which a side
/// has more than seq_len tokens is cut by the rule of --cut-pairs (cut_pair).
/// A conversation without a target left is dropped. A pair is dropped if its sides are equal or if
/// keeps_targets refuses it.
std::unique_ptr<DocumentMaker> make_chat_documents(const Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

}  // namespace trireme
