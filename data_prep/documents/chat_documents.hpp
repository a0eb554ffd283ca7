#pragma once
#include <memory>

#include "data_prep/documents/document_maker.hpp"

namespace trireme {

/// Makes documents of conversations and of preference pairs: chats that a template renders, with the
/// tokens that are targets.
///
/// A conversation of more than seq_len tokens loses those at its end. The prompt of a pair is the
/// longest run of tokens that both sides begin with. If a side has more than seq_len tokens, the
/// pair is cut by the rule of --cut-pairs (cut_pair).
/// A conversation without a target left is dropped. A pair is dropped if its sides are equal or if
/// keeps_targets refuses it.
std::unique_ptr<DocumentMaker> make_chat_documents(const Tokenizer& tokenizer,
                                                   const DocumentRules& rules);

}  // namespace trireme
