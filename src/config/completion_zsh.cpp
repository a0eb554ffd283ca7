#include "config/completion.hpp"
#include "core/join.hpp"

namespace trireme::config {
namespace {

/// Returns the text in single quotes.
std::string zsh_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'')
      result += "'\\''";
    else
      result += c;
  }
  return result + "'";
}

/// Returns "name:help" in the form that _describe reads.
std::string described(const std::string& name, const std::string& help) {
  std::string text;
  for (const char c : name) text += c == ':' ? std::string("\\:") : std::string(1, c);
  return zsh_quoted(formatted("{}:{}", text, help));
}

std::string zsh_assignments(const CompletedValue& value) {
  std::string text;
  if (!value.words.empty()) {
    text += " words_here=(";
    for (const std::string& word : value.words) text += formatted(" {}", zsh_quoted(word));
    text += " )";
  }
  if (value.files) text += " files=1";
  return text;
}

std::string zsh_branch(const CompletedCommand& command) {
  std::string options;
  std::string cases;
  for (const CompletedOption& option : command.options) {
    for (const std::string& name : option.names)
      options += formatted("        {}\n", described(name, option.help));
    if (option.takes_value)
      cases += formatted("        {}) value=1{} ;;\n", joined(option.names, "|"),
                         zsh_assignments(option.value));
  }
  return formatted(
      "    {})\n      options=(\n{}      )\n      case $option in\n{}        *){} ;;\n      esac ;;\n",
      zsh_quoted(command.name), options, cases,
      command.arguments.words.empty() && !command.arguments.files
          ? " :"
          : zsh_assignments(command.arguments));
}

constexpr const char* kZshBefore = R"(() {
  local option='' command='' files='' value='' help=''
  local -a line options words_here commands_here
  line=("${(@)words[2,CURRENT-1]}")
  if [[ $PREFIX == --*=* ]]; then
    option=${PREFIX%%=*}
    compset -P '*='
  elif [[ ${line[-1]-} == -* ]]; then
    option=${line[-1]}
  fi
  if [[ ${line[1]-} == help ]]; then
    help=1
    shift line
  fi
  case ${line[1]-} in
)";

constexpr const char* kMiddle = R"(    *) command=${line[1]} ;;
  esac
  if (($#commands_here)); then
    _describe command commands_here
    return
  fi
  if [[ -n $help ]]; then return 1; fi
  case $command in
)";

constexpr const char* kZshEnd = R"(  esac
  if [[ -z $value && ($PREFIX == -* || (-z $files && $#words_here -eq 0)) ]]; then
    _describe -o option options
    return
  fi
  if (($#words_here)); then compadd -- $words_here; fi
  if [[ -n $files ]]; then _files; fi
}
)";

}  // namespace

std::string zsh_completion(const std::string& program, const std::string& function,
                           const std::vector<CompletedCommand>& commands) {
  std::string first = formatted("      {}\n", described("help", "explain a command"));
  std::string levels;
  for (const CompletedCommand& command : commands) {
    if (command.name.find(' ') == std::string::npos)
      first += formatted("      {}\n", described(command.name, command.help));
  }
  for (const std::string& group : completed_groups(commands)) {
    std::string members;
    std::vector<std::string> names;
    for (const CompletedCommand& command : commands) {
      if (!command.name.starts_with(group + ' ')) continue;
      const std::string name = command.name.substr(group.size() + 1);
      members += formatted("        {}\n", described(name, command.help));
      names.push_back(name);
    }
    first += formatted("      {}\n", described(group, joined(names, ", ")));
    levels += formatted(
        "    {})\n      if (($#line == 1)); then commands_here=(\n{}      ); else command=\"{} ${{line[2]}}\"; fi ;;\n",
        group, members, group);
  }
  std::string text = formatted(
      "#compdef {}\n# zsh completion, written by `{} completion zsh`\n{}{}    '') commands_here=(\n{}    ) ;;\n{}{}",
      program, program, function, kZshBefore, first, levels, kMiddle);
  for (const CompletedCommand& command : commands) text += zsh_branch(command);
  // If compinit loads the file, it is the body of the function; if it is sourced, it declares the
  // function.
  return formatted("{}{}if [[ $funcstack[1] == _{} ]]; then {} \"$@\"; else compdef {} {}; fi\n",
                   text, kZshEnd, program, function, function, program);
}

}  // namespace trireme::config
