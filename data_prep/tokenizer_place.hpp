#pragma once
#include <filesystem>
#include <string>

#include "text/tokenizer.hpp"

namespace trireme {

/// Help text of every option that takes a tokenizer.
inline constexpr const char* kTokenizerPlaceHelp =
    "folder with a tokenizer.json (a tokenizer, checkpoint, run or Hugging Face folder), or the file";

/// Loads the tokenizer at `place`: a tokenizer.json, a folder that has one (a tokenizer, a checkpoint,
/// a Hugging Face folder), or a run, whose newest checkpoint with a tokenizer.json is taken. Throws
/// Error(data) if there is none, or if it is damaged or not supported.
Tokenizer load_tokenizer(const std::filesystem::path& place);

}  // namespace trireme
