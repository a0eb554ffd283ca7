#include "data_prep/documents/chat_options.hpp"

#include <sstream>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "text/chat/chat_template.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme {
namespace {

std::vector<std::string> read_prompts(const std::string& path) {
  const std::string text = read_file(path);
  check_utf8(text, path);
  std::istringstream lines(text);
  std::vector<std::string> prompts;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) prompts.push_back(line);
  }
  return prompts;
}

/// "question,answer"; empty names stay, so that they can be refused.
std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> result;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = names.find(',', begin);
    result.push_back(names.substr(begin, end - begin));
    if (end == std::string::npos) return result;
    begin = end + 1;
  }
}

/// "chatml|llama3": what help and completion take for the values.
std::string template_placeholder() {
  std::string names = chat_template_names();
  for (std::size_t at = names.find(", "); at != std::string::npos; at = names.find(", "))
    names.replace(at, 2, 1, '|');
  return names;
}

}  // namespace

void add_chat_options(Command& command, ChatOptions& options) {
  command
      .option(
          "--fields", &options.fields, "NAMES",
          "sft: USER,ASSISTANT, the fields of a record of two texts; dpo: PROMPT,CHOSEN,REJECTED")
      .option("--template", &options.config.format, template_placeholder(),
              "sft, dpo: how a chat is written")
      .option("--mask", &options.config.mask, "answer|minimind",
              "sft, dpo: targets are each answer with its end token, or what MiniMind trains")
      .option("--special-in-content", &options.config.special_in_content, "text|allow|error",
              "sft, dpo: added tokens inside a message are plain characters, tokens, or a bad line")
      .option("--augment", &options.augment, "none|minimind",
              "sft, dpo: minimind is --add-system 0.2 --drop-empty-think 0.8 (0.95 for V2.5)")
      .option("--add-system", &options.add_system, "P",
              "sft: probability of a system message where there is none; -1: as --augment says")
      .option(
          "--drop-empty-think", &options.drop_empty_think, "P",
          "sft, dpo: probability that a chat loses its empty think blocks; -1: as --augment says")
      .option("--system-prompts", &options.system_prompts, "FILE",
              "for --add-system: a prompt a line; without it ten built-in ones")
      .option("--copies", &options.config.copies, "N",
              "sft, dpo: documents a line, each with draws of its own: one an epoch")
      .option("--seed", &options.seed, "S", "sft, dpo: of these draws");
}

ChatConfig resolve_chat_options(const ChatOptions& options) {
  ChatConfig config = options.config;
  if (!options.fields.empty()) config.fields = split_names(options.fields);
  if (options.augment != "none" && options.augment != "minimind")
    fail(ErrorKind::usage, "--augment {}, must be none or minimind", options.augment);
  ChatAugment& augment = config.augment;
  if (options.augment == "minimind") {
    augment.add_system = 0.2;
    augment.drop_empty_think = config.format == "minimind-v2.5" ? 0.95 : 0.8;
  }
  if (options.add_system != -1) augment.add_system = options.add_system;
  if (options.drop_empty_think != -1) augment.drop_empty_think = options.drop_empty_think;
  augment.system_prompts = options.system_prompts.empty() ? default_system_prompts()
                                                          : read_prompts(options.system_prompts);
  if (options.seed < 0) fail(ErrorKind::usage, "--seed {}, must be 0 or more", options.seed);
  augment.seed = static_cast<std::uint64_t>(options.seed);
  return config;
}

}  // namespace trireme
