#pragma once
#include <map>
#include <string>
#include <string_view>

namespace trireme::text {

/// Adds tokenizer.json to the files of a directory that only has vocab.json and merges.txt (GPT-2,
/// Qwen 2), with the tokenizer that `transformers` makes of them. Added tokens come from
/// added_tokens.json and tokenizer_config.json, special tokens also from special_tokens_map.json.
/// Does nothing if the directory has a tokenizer.json or lacks one of the two files.
/// Throws Error(data) for damaged files and for a `tokenizer_class` with other rules.
void add_tokenizer_json(std::map<std::string, std::string>& files, std::string_view where);

}  // namespace trireme::text
