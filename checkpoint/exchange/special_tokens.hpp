#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/json.hpp"

/// Special tokens in the files of a Hugging Face folder.
namespace trireme {

/// Says which tokens end a text; carried in checkpoints.
inline constexpr const char* kGenerationConfigFile = "generation_config.json";

/// By role: "bos" and "pad" one id, "eos" one or several. Roles that are not set are left out.
using SpecialTokenIds = std::map<std::string, std::vector<std::int64_t>>;

/// From tokenizer_config.json and tokenizer.json; "eos" begins with what generation_config.json
/// lists. Files that are not there say nothing.
SpecialTokenIds special_token_ids(const std::map<std::string, std::string>& files);

/// From the `<role>_token_id` of a config.json or generation_config.json. Throws Error(data) if it
/// is no object, and naming the key if eos_token_id is neither null nor an id nor a list of ids.
SpecialTokenIds listed_token_ids(const Json& config, std::string_view where);

/// As the two files write it: a number, or a list of several.
Json id_json(const std::vector<std::int64_t>& ids);

/// generation_config.json.
std::string hf_generation_text(const SpecialTokenIds& special_ids);

/// special_tokens_map.json from tokenizer_config.json; "" if that file is absent.
std::string special_tokens_map_text(const std::map<std::string, std::string>& files);

}  // namespace trireme
