#include "config/completion.hpp"

namespace trireme {
namespace {

/// In single quotes.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'')
      result += "'\\''";
    else
      result += c;
  }
  return result + "'";
}

/// "name:help" as _describe reads it.
std::string described(const std::string& name, const std::string& help) {
  std::string text;
  for (const char c : name) text += c == ':' ? std::string("\\:") : std::string(1, c);
  return quoted(cat(text, ":", help));
}

std::string assignments(const CompletedValue& value) {
  std::string text;
  if (!value.words.empty()) {
    text += " words_here=(";
    for (const std::string& word : value.words) text += cat(" ", quoted(word));
    text += " )";
  }
  if (value.files) text += " files=1";
  return text;
}

std::string branch(const CompletedCommand& command) {
  std::string options;
  std::string cases;
  for (const CompletedOption& option : command.options) {
    std::string names;
    for (const std::string& name : option.names) {
      options += cat("        ", described(name, option.help), "\n");
      names += (names.empty() ? "" : "|") + name;
    }
    if (option.takes_value)
      cases += cat("        ", names, ") value=1", assignments(option.value), " ;;\n");
  }
  return cat("    ", quoted(command.name), ")\n      options=(\n", options,
             "      )\n      case $option in\n", cases, "        *)",
             command.arguments.words.empty() && !command.arguments.files
                 ? " :"
                 : assignments(command.arguments),
             " ;;\n      esac ;;\n");
}

constexpr const char* kBefore = R"(() {
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

constexpr const char* kEnd = R"(  esac
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
  std::string first = cat("      ", described("help", "explain a command"), "\n");
  std::string levels;
  for (const CompletedCommand& command : commands) {
    if (command.name.find(' ') == std::string::npos)
      first += cat("      ", described(command.name, command.help), "\n");
  }
  for (const std::string& group : completed_groups(commands)) {
    std::string members;
    std::string names;
    for (const CompletedCommand& command : commands) {
      if (!command.name.starts_with(group + ' ')) continue;
      const std::string name = command.name.substr(group.size() + 1);
      members += cat("        ", described(name, command.help), "\n");
      names += (names.empty() ? "" : ", ") + name;
    }
    first += cat("      ", described(group, names), "\n");
    levels += cat("    ", group, ")\n      if (($#line == 1)); then commands_here=(\n", members,
                  "      ); else command=\"", group, " ${line[2]}\"; fi ;;\n");
  }
  std::string text =
      cat("#compdef ", program, "\n# zsh completion, written by `", program, " completion zsh`\n",
          function, kBefore, "    '') commands_here=(\n", first, "    ) ;;\n", levels, kMiddle);
  for (const CompletedCommand& command : commands) text += branch(command);
  // Loaded by compinit the file is the function's body; sourced, it declares it.
  return cat(text, kEnd, "if [[ $funcstack[1] == _", program, " ]]; then ", function,
             " \"$@\"; else compdef ", function, " ", program, "; fi\n");
}

}  // namespace trireme
