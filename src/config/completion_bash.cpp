#include "config/completion.hpp"
#include "core/join.hpp"

/// Completion for Bash 4.4 or later. Bash splits words at "=": `--key=va` arrives as three words.
namespace trireme::config {
namespace {

/// Returns the shell assignments for the words of a position: "words='a b' files=1".
std::string bash_assignments(const CompletedValue& value) {
  std::string text;
  if (!value.words.empty()) text += formatted(" words='{}'", joined(value.words, " "));
  if (value.files) text += " files=1";
  return text;
}

/// Returns the case branch of one command: its options, and the values of options that take one.
std::string bash_branch(const CompletedCommand& command) {
  std::string cases;
  for (const CompletedOption& option : command.options) {
    if (option.takes_value)
      cases += formatted("        {}) value=1{} ;;\n", joined(option.names, "|"),
                         bash_assignments(option.value));
  }
  const std::string names = joined(command.options, " ", [](const CompletedOption& option) {
    return joined(option.names, " ");
  });
  const std::string arguments = bash_assignments(command.arguments);
  return formatted("    '{}')\n      options='{}'\n      case $option in\n{}{}      esac ;;\n",
                   command.name, names, cases,
                   arguments.empty() ? "" : formatted("        *){} ;;\n", arguments));
}

constexpr const char* kBashBefore = R"(() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local option='' command='' options='' words='' files='' value=''
  local -a line=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  COMPREPLY=()
  if [[ $current == = ]]; then
    current='' option=$before
  elif [[ $before == = ]]; then
    option=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $before == -* ]]; then
    option=$before
  fi
  local help=''
  if [[ ${line[0]-} == help ]]; then
    help=1 line=("${line[@]:1}")
  fi
  case ${line[0]-} in
)";

constexpr const char* kAfter = R"(  esac
  if [[ -n $help && -n $command ]]; then return; fi
  case $command in
)";

constexpr const char* kBashEnd = R"(  esac
  if [[ -z $value && ($current == -* || -z $words$files) ]]; then
    words=$options files=''
  fi
  if [[ -n $words ]]; then mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"); fi
  if [[ -n $files ]]; then
    local -a found
    mapfile -t found < <(compgen -f -- "$current")
    COMPREPLY+=("${found[@]}")
    compopt -o filenames 2> /dev/null
  fi
}
)";

}  // namespace

std::string bash_completion(const std::string& program, const std::string& function,
                            const std::vector<CompletedCommand>& commands) {
  const std::vector<std::string> groups = completed_groups(commands);
  std::vector<std::string> first;
  std::string levels;
  for (const CompletedCommand& command : commands) {
    if (command.name.find(' ') == std::string::npos) first.push_back(command.name);
  }
  for (const std::string& group : groups) {
    std::string members;
    for (const CompletedCommand& command : commands) {
      if (command.name.starts_with(group + ' ')) members += command.name.substr(group.size());
    }
    first.push_back(group);
    levels += formatted(
        "    {})\n      if ((${{#line[@]}} == 1)); then words='{} --help'; else command=\"{} ${{line[1]}}\"; fi ;;\n",
        group, members.substr(1), group);
  }
  std::string text = formatted(
      "# bash completion for {}, written by `{} completion bash`\n{}{}    '') words='{} help --help --version' ;;\n{}    *) command=${{line[0]}} ;;\n{}",
      program, program, function, kBashBefore, joined(first, " "), levels, kAfter);
  for (const CompletedCommand& command : commands) text += bash_branch(command);
  return formatted("{}{}complete -F {} {}\n", text, kBashEnd, function, program);
}

}  // namespace trireme::config
