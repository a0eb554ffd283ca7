#pragma once
#include <string>
#include <utility>
#include <vector>

#include "text/learn/bpe_trainer.hpp"
#include "text/split/splitter.hpp"

namespace trireme {

/// tokenizer.json of a byte-level BPE model with one pattern, in the layout of
/// Hugging Face's save().
///   tokens  by id, in the byte alphabet      merges  pairs of ids by rank, no pair twice
std::string write_tokenizer_json(const std::vector<std::string>& tokens,
                                 const std::vector<std::pair<std::uint32_t, std::uint32_t>>& merges,
                                 const std::vector<ReservedToken>& reserved,
                                 SplitStep pattern = SplitStep::gpt2);

/// tokenizer_config.json for `AutoTokenizer`, with a plain ChatML template if
/// the reserved tokens allow one.
std::string write_tokenizer_config(const BpeTrainOptions& options);

}  // namespace trireme
