#include "config/completion.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/edit_distance.hpp"
#include "core/join.hpp"

namespace trireme::config {
namespace {

struct Shell {
  const char* name;
  const char* place;  // file after "completion NAME > "
  std::string (*script)(const std::string& program, const std::string& function,
                        const std::vector<CompletedCommand>& commands);
};

constexpr std::array<Shell, 3> kShells{{
    {"bash", "~/.local/share/bash-completion/completions/PROGRAM", bash_completion},
    {"zsh", "~/.zfunc/_PROGRAM", zsh_completion},
    {"fish", "~/.config/fish/completions/PROGRAM.fish", fish_completion},
}};

/// Parses a placeholder: "auto|cpu|cuda" are values, FILE and DIR are paths, other names any text.
CompletedValue value_of(const std::string& placeholder) {
  CompletedValue value;
  for (const std::string& part : split(placeholder, '|')) {
    const bool is_name = std::none_of(part.begin(), part.end(), [](unsigned char c) {
      return std::islower(c) != 0 || std::isdigit(c) != 0;
    });
    if (!is_name) value.words.push_back(part);
    value.files =
        value.files || part.starts_with("FILE") || part.starts_with("DIR") || part == "MODEL";
  }
  return value;
}

CompletedValue value_of_key(const ConfigSet& set, const std::string& key) {
  if (const auto* allowed = set.problems().allowed(key)) return {*allowed, false};
  const std::string type = set.placeholder(key);
  if (type == "BOOL") return {{"true", "false"}, false};
  return {{}, type == "TEXT"};
}

CompletedCommand completed(const CommandSpec& spec) {
  CompletedCommand command{spec.name, spec.help, {}, {}};
  for (const OptionSpec& positional : spec.positionals) {
    const CompletedValue value = value_of(positional.placeholder);
    auto& words = command.arguments.words;
    words.insert(words.end(), value.words.begin(), value.words.end());
    command.arguments.files = command.arguments.files || value.words.empty();
  }
  for (const OptionSpec& option : spec.options) {
    const CompletedValue value = value_of(option.placeholder);
    const bool list = std::holds_alternative<std::vector<std::string>*>(option.target);
    if (list && value.files) command.arguments.files = true;  // values after the first one
    command.options.push_back({split(option.name, ','), option.help, !option.is_flag, value});
  }
  if (spec.settings_file == SettingsFile::toml)
    command.options.push_back({{"--config"}, "TOML file", true, {{}, true}});
  if (const ConfigSet* set = spec.config) {
    for (const AliasSpec& alias : spec.aliases)
      command.options.push_back(
          {{alias.option}, set->help(alias.key), true, value_of_key(*set, alias.key)});
    command.options.push_back({{"--config"}, "TOML file", true, {{}, true}});
    for (const std::string& key : set->keys())
      command.options.push_back({{"--" + key}, set->help(key), true, value_of_key(*set, key)});
    command.options.push_back({{"--help-all"}, "explain every key", false, {}});
  }
  command.options.push_back({{"--help", "-h"}, "explain this command", false, {}});
  command.options.push_back({{"--version", "-V"}, "show the version", false, {}});
  return command;
}

}  // namespace

std::vector<CompletedCommand> completed_commands(const std::vector<CommandSpec>& commands) {
  std::vector<CompletedCommand> result;
  for (const CommandSpec& command : commands) result.push_back(completed(command));
  return result;
}

std::vector<std::string> completed_groups(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> groups;
  for (const CompletedCommand& command : commands) {
    const std::size_t space = command.name.find(' ');
    if (space == std::string::npos) continue;
    const std::string group = command.name.substr(0, space);
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

std::string completion_script(const std::string& shell, const std::string& program,
                              const std::vector<CommandSpec>& commands) {
  std::vector<std::string> known;
  for (const Shell& candidate : kShells) {
    known.emplace_back(candidate.name);
    if (shell != candidate.name) continue;
    std::string function = "_" + program;
    std::replace(function.begin(), function.end(), '-', '_');
    return candidate.script(program, function, completed_commands(commands));
  }
  fail(ErrorKind::usage, "completion for shell '{}', must be one of bash, zsh, fish{}", shell,
       did_you_mean(shell, known));
}

std::string completion_place(const std::string& program, const std::string& shell) {
  for (const Shell& candidate : kShells) {
    if (shell != candidate.name) continue;
    std::string place = candidate.place;
    const std::size_t at = place.find("PROGRAM");
    return formatted("{} completion {} > {}", program, shell,
                     place.replace(at, std::string("PROGRAM").size(), program));
  }
  fail(ErrorKind::internal, "no place for the completion of {}", shell);
}

}  // namespace trireme::config
