#include "config/completion.hpp"
#include "core/join.hpp"

/// Completion for Fish 3.0 or later. Each option is declared under the condition that its command
/// was typed.
namespace trireme::config {
namespace {

/// Returns the text in single quotes.
std::string single_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

/// Returns the words of a position as arguments of `complete`.
std::string offers(const CompletedValue& value) {
  return cat(
      value.files ? " -F" : "",
      value.words.empty() ? "" : formatted(" -a {}", single_quoted(joined(value.words, " "))));
}

std::string option_line(const std::string& start, const CompletedOption& option) {
  std::string text = start;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? formatted(" -l {}", name.substr(2))
                                   : formatted(" -s {}", name.substr(1));
  if (option.takes_value) text += cat(option.value.files ? " -r" : " -x", offers(option.value));
  return formatted("{} -d {}\n", text, single_quoted(option.help));
}

/// Fish functions: NAME_at WORDS... is true if exactly these words were typed, also after `help`.
/// NAME_in WORDS... is true if the typed words begin with them.
constexpr const char* kConditions = R"(
function NAME_at
    set -l typed (commandline -opc)
    set -e typed[1]
    if test "$typed[1]" = help
        set -e typed[1]
    end
    test "$typed" = "$argv"
end
function NAME_in
    set -l typed (commandline -opc)
    set -e typed[1]
    set -l count (count $argv)
    test (count $typed) -ge $count; and test "$typed[1..$count]" = "$argv"
end
complete -c PROGRAM -f
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

std::string fish_completion(const std::string& program, const std::string& function,
                            const std::vector<CompletedCommand>& commands) {
  const std::string start = formatted("complete -c {} -n ", program);
  const std::string first =
      formatted("{}{} -a ", start, single_quoted(formatted("_{}_at", function)));
  std::string text =
      formatted("# fish completion for {}, written by `{} completion fish`{}", program, program,
                replaced(replaced(kConditions, "NAME", "_" + function), "PROGRAM", program));
  text += formatted("{}help -d 'explain a command'\n", first);
  for (const std::string& group : completed_groups(commands))
    text += formatted("{}{}\n", first, group);
  for (const CompletedCommand& command : commands) {
    const std::size_t space = command.name.find(' ');
    text +=
        space == std::string::npos
            ? cat(first, command.name)
            : formatted(
                  "{}{} -a {}", start,
                  single_quoted(formatted("_{}_at {}", function, command.name.substr(0, space))),
                  command.name.substr(space + 1));
    text += formatted(" -d {}\n", single_quoted(command.help));
    const std::string here =
        cat(start, single_quoted(formatted("_{}_in {}", function, command.name)));
    const std::string arguments = offers(command.arguments);
    if (!arguments.empty()) text += formatted("{}{}\n", here, arguments);
    for (const CompletedOption& option : command.options) text += option_line(here, option);
  }
  return text;
}

}  // namespace trireme::config
