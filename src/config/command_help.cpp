#include "config/command_help.hpp"

#include <algorithm>
#include <utility>

#include "core/join.hpp"

namespace trireme::config {
namespace {

constexpr std::size_t kWidth = 88;

/// Wraps `text` into lines of at most kWidth columns; lines after the first are indented. A word
/// that is too long for a line is divided after a '|'.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  std::size_t begin = 0;
  bool is_divided = false;
  while (begin <= text.size()) {
    std::size_t end = std::min(text.find(' ', begin), text.size());
    const bool is_rest = is_divided;
    const std::size_t bar = text.rfind('|', begin + kWidth - indent - 1);
    is_divided = end - begin > kWidth - indent && bar != std::string::npos && bar > begin;
    if (is_divided) end = bar + 1;
    const std::size_t length = end - begin;
    if (is_rest || (begin != 0 && column + 1 + length > kWidth)) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (begin != 0) {
      result += ' ';
      ++column;
    }
    result.append(text, begin, length);
    column += length;
    begin = is_divided ? end : end + 1;
  }
  return result;
}

/// Wraps the lines of `text` that are longer than 100 columns; keeps their indentation.
std::string with_short_lines(const std::string& text) {
  std::string result;
  for (const std::string& line : split(text, '\n')) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    result += line.size() > 100
                  ? std::string(indent, ' ') + wrapped(line.substr(indent), indent) + '\n'
                  : line + '\n';
  }
  result.pop_back();  // split() returns an empty part after the last line feed
  return result;
}

std::string two_columns(const HelpRows& rows) {
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, std::min(row.first.size(), std::size_t{28}));
  std::string text;
  for (const auto& row : rows) {
    std::string line = "  " + row.first;
    if (line.size() > width + 4) line += '\n' + std::string(width + 2, ' ');
    line.append(line.size() < width + 4 ? width + 4 - line.size() : 2, ' ');
    text += line + wrapped(row.second, width + 4) + '\n';
  }
  return text;
}

}  // namespace

std::string CommandHelp::list(const std::string& group, const std::vector<CommandSpec>& commands) {
  const std::string prefix = group.empty() ? "" : formatted("{} ", group);
  HelpRows rows;
  for (const CommandSpec& command : commands) {
    if (command.name.starts_with(prefix))
      rows.emplace_back(command.name.substr(prefix.size()), command.help);
  }
  return "commands:\n" + two_columns(rows);
}

std::string CommandHelp::overview(const std::string& help,
                                  const std::vector<CommandSpec>& commands) const {
  return formatted(
      "{} - {}\n\nusage: {} COMMAND [options]\n\n{}\n{} help COMMAND (or COMMAND --help) shows one command.\n{} --version shows versions.\n",
      program_, help, program_, list("", commands), program_, program_);
}

std::string CommandHelp::of_help() const {
  return formatted(
             "{} help - show the help of the program, a group or a command\n\n"
             "usage: {} help [COMMAND]\n\n",
             program_, program_) +
         two_columns({{formatted("{} help", program_), "list all commands"},
                      {formatted("{} help COMMAND", program_), "same as COMMAND --help"},
                      {"COMMAND --help-all", "explain every configuration key of the command"}});
}

std::string CommandHelp::group(const GroupSpec& group,
                               const std::vector<CommandSpec>& commands) const {
  const std::string name = formatted("{} {}", program_, group.name);
  return formatted(
      "{} - {}\n\nusage: {} COMMAND [options]\n\n{}\n{} COMMAND --help shows one command.\n", name,
      group.help, name, list(group.name, commands), name);
}

std::string CommandHelp::usage(const CommandSpec& command) const {
  std::string text = formatted("{} {}", program_, command.name);
  if (command.config != nullptr || command.settings_file == SettingsFile::toml)
    text += " [--config FILE]";
  for (const AliasSpec& alias : command.aliases) {
    if (alias.need == Need::required) text += formatted(" {} VALUE", alias.option);
  }
  for (const OptionSpec& option : command.options) {
    if (option.need == Need::required)
      text += formatted(" {} {}", option.name.substr(0, option.name.find(',')), option.placeholder);
  }
  for (const OptionSpec& option : command.positionals) {
    const bool list = std::holds_alternative<std::vector<std::string>*>(option.target);
    const std::string word = option.placeholder + (list ? "..." : "");
    text += option.need == Need::required ? formatted(" {}", word) : formatted(" [{}]", word);
  }
  const bool more =
      std::any_of(command.options.begin(), command.options.end(),
                  [](const OptionSpec& option) { return option.need == Need::optional; });
  if (more) text += " [options]";
  if (command.config != nullptr) text += " [--section.key VALUE ...]";
  for (const OptionSpec& rest : command.rest) {
    text += rest.need == Need::required ? formatted(" -- {}...", rest.placeholder)
                                        : formatted(" [-- {}...]", rest.placeholder);
  }
  return text;
}

HelpRows CommandHelp::options(const CommandSpec& command) {
  HelpRows rows;
  for (const OptionSpec& option : command.positionals)
    rows.emplace_back(option.placeholder, option.help);
  for (const OptionSpec& option : command.options) {
    std::string meaning = option.help;
    if (option.need == Need::required) meaning += " (required)";
    if (!option.default_text.empty()) meaning += formatted(" [{}]", option.default_text);
    rows.emplace_back(cat(option.name, option.placeholder.empty() ? "" : " ", option.placeholder),
                      meaning);
  }
  for (const AliasSpec& alias : command.aliases) {
    rows.emplace_back(
        alias.option + " VALUE",
        formatted("same as --{}{}", alias.key, alias.need == Need::required ? " (required)" : ""));
  }
  if (command.config != nullptr)
    rows.emplace_back("--config FILE", "TOML file; may be repeated, later files win");
  if (command.settings_file == SettingsFile::toml) {
    rows.emplace_back(
        "--config FILE",
        formatted("TOML file with these options as keys of [{}] (--a-b becomes a_b); options win "
                  "over files, later files over earlier ones",
                  command.settings->sections().front()));
  }
  for (const OptionSpec& rest : command.rest)
    rows.emplace_back("-- " + rest.placeholder, rest.help);
  rows.emplace_back("-h, --help", command.config != nullptr
                                      ? "show this help; --help-all explains every key"
                                      : "show this help");
  rows.emplace_back("-V, --version", "show the version");
  return rows;
}

const char* CommandHelp::ranks(const CommandSpec& command) {
  return command.ranks == Ranks::one ? "one"
                                     : "any number started by mpirun or srun; they share the work";
}

std::string CommandHelp::config(const ConfigSet& set, bool all) {
  std::string text =
      "\nconfig keys: --section.key VALUE, TOML file, or TRIREME_SECTION_KEY in the environment\n"
      "(command line > environment > last --config > first --config > earlier values of the run >\n"
      "preset > default):\n";
  HelpRows rows;
  for (const std::string& section : set.sections()) {
    if (all) {
      text += formatted("\n[{}]\n{}", section, with_short_lines(set.help_text(section)));
      continue;
    }
    std::string names;
    for (const std::string& name : set.names(section)) {
      names += (names.empty() ? "" : " ") + name;
      const auto* allowed = set.problems().allowed(formatted("{}.{}", section, name));
      if (allowed == nullptr) continue;
      char separator = '=';
      for (const std::string& value : *allowed) {
        names += separator + value;
        separator = '|';
      }
    }
    rows.emplace_back(section, names);
  }
  if (!all) text += "key=VALUES lists all allowed values\n";
  return text + two_columns(rows);
}

std::string CommandHelp::command(const CommandSpec& command, bool all) const {
  const std::string title = formatted("{} {} - {}", program_, command.name, command.help);
  std::string text =
      formatted("{}\n\nusage: {}\nranks: {}\n\n{}", wrapped(title, 2), wrapped(usage(command), 9),
                ranks(command), two_columns(options(command)));
  if (command.config != nullptr) text += config(*command.config, all);
  if (!command.examples.empty()) text += "\nexamples:\n";
  for (const std::string& example : command.examples) text += formatted("  {}\n", example);
  return text;
}

}  // namespace trireme::config
