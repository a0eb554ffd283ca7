#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "text/chat/conversation.hpp"

namespace trireme {

using PromptContent = std::variant<std::string, std::vector<std::uint32_t>, Conversation>;

struct Prompt {
  PromptContent content;
  std::string where;  // "prompts.jsonl:3"; "" for one from the command line
};

/// The prompts of a file, in order: a line is {"prompt": "..."}, {"ids": [..]} or {"messages": [..]}
/// with "tools", as ChatForm::request; other members are ignored, blank lines are skipped. Throws
/// Error(data) with file and line for anything else, and for a file without a prompt.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);
/// The same of a stream to its end; `where` is then "standard input:3".
std::vector<Prompt> read_prompts(std::FILE* stream);

/// All of a stream of at most `max_bytes` but its last line end, which `echo` puts there. Throws
/// Error(data) if it is larger.
std::string read_prompt(std::FILE* stream, std::size_t max_bytes = std::size_t{64} << 20);

}  // namespace trireme
