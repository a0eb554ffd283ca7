#pragma once
#include <filesystem>
#include <string>

#include "text/tokenizer.hpp"

namespace trireme::data_prep {

/// Help text of every option that takes a tokenizer.
inline constexpr const char* kTokenizerPathHelp =
    "tokenizer.json, or a directory with one (tokenizer, checkpoint, run, Hugging Face model)";

/// Loads the tokenizer at `place`: a tokenizer.json, a directory that contains one (tokenizer,
/// checkpoint, Hugging Face directory), or a run (its newest checkpoint with a tokenizer.json).
/// Throws Error(data) if there is none, or if it is damaged or not supported.
text::Tokenizer load_tokenizer(const std::filesystem::path& place);

}  // namespace trireme::data_prep
