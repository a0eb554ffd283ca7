#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/json.hpp"
#include "model/config.hpp"

/// Reads the token ids in the files of a Hugging Face directory.
namespace trireme::checkpoint {

/// Names the tokens that end a text; stored in checkpoints.
inline constexpr const char* kGenerationConfigFile = "generation_config.json";

/// Key: role. "bos" and "pad" have one id, "eos" has one or more. A role that is not set is absent.
using SpecialTokenIds = std::map<std::string, std::vector<std::int64_t>>;

/// Reads tokenizer_config.json and tokenizer.json. "eos" begins with the ids of
/// generation_config.json. Missing files are ignored.
SpecialTokenIds special_token_ids(const std::map<std::string, std::string>& files);

/// Reads `<role>_token_id` of a config.json or generation_config.json. Throws Error(data) if
/// `config` is not an object, or if eos_token_id is not null, an id or a list of ids.
SpecialTokenIds listed_token_ids(const Json& config, std::string_view where);

/// Formats ids as the two files do: one number, or a list of several.
Json id_json(const std::vector<std::int64_t>& ids);

/// Returns the content of generation_config.json.
std::string hf_generation_text(const SpecialTokenIds& special_ids);

/// Returns special_tokens_map.json made from tokenizer_config.json; "" if that file is absent.
std::string special_tokens_map_text(const std::map<std::string, std::string>& files);

/// Returns the highest id in tokenizer.json and tokenizer_config.json (added tokens included) plus
/// one; 0 without such files. Accepts any kind of tokenizer. Throws Error(data) naming a file of
/// `where` that is not JSON.
std::int64_t num_token_ids(const std::map<std::string, std::string>& files,
                           const std::string& where);

/// Throws Error(data) naming both numbers if there are more ids than rows. Unused rows are allowed:
/// many models are padded.
void check_tokenizer_fits(std::int64_t num_ids, const model::ModelConfig& config,
                          std::string_view where);

}  // namespace trireme::checkpoint
