#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "text/chat/conversation.hpp"

namespace trireme::generate {

using PromptContent = std::variant<std::string, std::vector<std::uint32_t>, text::Conversation>;

struct Prompt {
  PromptContent content;
  std::string where;  // "prompts.jsonl:3"; "" for a prompt from the command line
};

/// Reads the prompts of a JSON Lines file, in order. A line is {"prompt": "..."}, {"ids": [..]} or
/// {"messages": [..]} with "tools" (ChatForm::request). Other members are ignored and blank lines
/// are skipped. Throws Error(data) for a line of another form (the message names file and line) and
/// if there is no prompt.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);
/// Reads prompts from a stream to its end; `where` is then "standard input:3".
std::vector<Prompt> read_prompts(std::FILE* stream);

/// Reads one prompt of at most `max_bytes` from a stream, without the final line end that `echo`
/// adds. Throws Error(data) if the input is larger.
std::string read_prompt(std::FILE* stream, std::size_t max_bytes = std::size_t{64} << 20);

}  // namespace trireme::generate
