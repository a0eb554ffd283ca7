#pragma once
#include <string>
#include <utility>
#include <vector>

#include "text/learn/bpe_trainer.hpp"
#include "text/split/splitter.hpp"

namespace trireme::text {

/// The chat template of every new tokenizer. It marks the roles and adds no text of its own. No
/// model has been trained with it yet.
inline constexpr const char* kNewTokenizerTemplate =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Returns tokenizer.json of a byte-level BPE model with one pattern, in the layout of Hugging
/// Face's save().
///   tokens  by id, in the byte alphabet
///   merges  pairs of ids by rank, without duplicates
std::string write_tokenizer_json(const std::vector<std::string>& tokens,
                                 const std::vector<std::pair<std::uint32_t, std::uint32_t>>& merges,
                                 const std::vector<ReservedToken>& reserved,
                                 SplitStep pattern = SplitStep::gpt2);

/// Returns tokenizer_config.json for `AutoTokenizer`, with kNewTokenizerTemplate if its markers are
/// reserved tokens.
std::string write_tokenizer_config(const BpeTrainOptions& options);

}  // namespace trireme::text
