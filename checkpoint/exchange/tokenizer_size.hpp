#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "model/config.hpp"

/// Whether a model has a row of its embedding for every token of the tokenizer it is kept with.
namespace trireme {

/// One more than the highest id in tokenizer.json and tokenizer_config.json, added tokens included;
/// 0 without such files. Any kind of tokenizer. Throws Error(data) for files that are no JSON, which
/// names them as files of `where`.
std::int64_t num_token_ids(const std::map<std::string, std::string>& files,
                           const std::string& where);

/// Throws Error(data) naming both numbers if there are more ids than rows. Rows to spare are fine:
/// many models are padded.
void check_tokenizer_fits(std::int64_t num_ids, const ModelConfig& config, std::string_view where);

}  // namespace trireme
