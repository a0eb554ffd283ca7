#pragma once
#include <string>
#include <vector>

#include "checkpoint/gguf/gguf_file.hpp"
#include "text/spec/tokenizer_spec.hpp"

namespace trireme::checkpoint {

/// Returns true if the text of an added token of a SentencePiece tokenizer is cut out of a text
/// before merges. Hugging Face does not cut out U+2581 where a text has a space, so a token with
/// U+2581 is cut out only if it is special.
bool is_cut_out(const text::AddedToken& added);

/// Adds the scores of a SentencePiece-BPE tokenizer and its rule for a space before the text.
///
/// llama.cpp has no merges for such tokenizers. It joins two adjacent symbols if the result is a
/// token, the token with the highest score first. A token therefore gets the score -r, where r is the
/// rank of its first merge. `tokens` has one text per row of the embedding. Throws Error(usage),
/// beginning with `where`, if llama.cpp would join other symbols or in another order, or if the
/// tokenizer changes texts in a way that llama.cpp does not have.
/// Source: llama.cpp, src/llama-vocab.cpp (llm_tokenizer_spm).
void put_gguf_pieces(const text::TokenizerSpec& spec, const std::vector<std::string>& tokens,
                     const std::string& where, GgufValues& values);

}  // namespace trireme::checkpoint
