#pragma once
#include <filesystem>
#include <string>

#include "text/tokenizer.hpp"

namespace trireme {

/// Help text of every option that takes a tokenizer.
inline constexpr const char* kTokenizerPlaceHelp =
    "tokenizer.json, or a directory with one (tokenizer, checkpoint, run, Hugging Face model)";

/// Loads the tokenizer at `place`: a tokenizer.json, a directory that contains one (tokenizer,
/// checkpoint, Hugging Face directory), or a run (its newest checkpoint with a tokenizer.json).
/// Throws Error(data) if there is none, or if it is damaged or not supported.
Tokenizer load_tokenizer(const std::filesystem::path& place);

}  // namespace trireme
