#pragma once
#include <map>
#include <string>

#include "checkpoint/gguf/gguf_file.hpp"

namespace trireme::checkpoint {

/// Adds the tokenizer of a model to the metadata: tokens, merges or scores, types of tokens, the
/// name of the pre-tokenizer in llama.cpp, special tokens and the chat template. Rows of the
/// embedding without a token get the text [PADn] and the type "unused".
///
/// `files` are the files of the tokenizer (exported_tokenizer); `where` names their origin.
/// Throws Error(usage) if there is no tokenizer, or if llama.cpp would compute other ids: a
/// Unigram tokenizer, an unknown pre-tokenizer, merges without scores (put_gguf_pieces), added
/// tokens that take white space or match only whole words, or a post-processor that adds more
/// than a begin and an end token. Source: llama.cpp, src/llama-vocab.cpp.
void put_gguf_tokenizer(const std::map<std::string, std::string>& files, std::int64_t vocab_size,
                        const std::string& where, GgufValues& values);

}  // namespace trireme::checkpoint
