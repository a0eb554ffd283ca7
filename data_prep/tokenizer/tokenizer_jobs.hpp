#pragma once
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data_prep/tokenizer/tokenizer_config.hpp"
#include "text/learn/bpe_trainer.hpp"

namespace trireme {

/// Counts the pieces of every text, learns merges, writes tokenizer.json and tokenizer_config.json
/// to config.output: a folder that is new, empty, or holds just what training gives.
/// Collective over `world` (null: this process alone): its ranks share the counting,
/// rank 0 learns. The files depend on the texts alone, not on threads or ranks.
/// Bad lines are left out with a warning. Throws Error(usage) for a wrong setting, or an output
/// folder that holds something else; Error(data) as pack.
void train_tokenizer(const TrainTokenizerConfig& config, Communicator* world = nullptr);

/// "minimind", "none", or a JSON file with a list of tokens or of {"content", "special"} objects.
/// Throws Error(data) that names what is wrong with the file.
std::vector<ReservedToken> read_special_tokens(const std::string& source);

/// A text field of each line to {"ids":[...]}, in order. Throws Error(data) with path:offset for
/// the first line without such a text: lines must stay in step.
void encode_file(const EncodeConfig& config);

/// {"ids":[...]} lines to {"text":...}, in order.
void decode_file(const DecodeConfig& config);

}  // namespace trireme
