#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "model/config.hpp"

/// Checks that the embedding of a model has a row for every token of its tokenizer.
namespace trireme {

/// Returns the highest id in tokenizer.json and tokenizer_config.json (added tokens included) plus
/// one; 0 without such files. Accepts any kind of tokenizer. Throws Error(data) naming a file of
/// `where` that is not JSON.
std::int64_t num_token_ids(const std::map<std::string, std::string>& files,
                           const std::string& where);

/// Throws Error(data) naming both numbers if there are more ids than rows. Unused rows are allowed:
/// many models are padded.
void check_tokenizer_fits(std::int64_t num_ids, const ModelConfig& config, std::string_view where);

}  // namespace trireme
