#include "config/manual_pages.hpp"

#include <algorithm>
#include <cctype>

#include "config/command_help.hpp"
#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::config {
namespace {

/// Returns `text` as one line of a manual page that man prints unchanged. A hyphen that is not
/// escaped would become a typographic hyphen, which a user cannot paste into a shell.
std::string roff(const std::string& text) {
  std::string result;
  if (text.starts_with('.') || text.starts_with('\'')) result = "\\&";
  for (const char c : text) {
    switch (c) {
      case '\\':
        result += "\\e";
        break;
      case '-':
        result += "\\-";
        break;
      case '~':
        result += "\\(ti";
        break;
      case '^':
        result += "\\(ha";
        break;
      case '`':
        result += "\\(ga";
        break;
      case '|':
        result += "|\\:";
        break;  // a line may end after it
      case '\n':
        result += ' ';
        break;
      default:
        result += c;
    }
  }
  return result;
}

/// Returns the one-line help of a command as a sentence.
std::string sentence(std::string help) {
  if (!help.empty()) help[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(help[0])));
  return help + '.';
}

std::string heading(const char* macro, const std::string& text) {
  return formatted(".{} {}\n", macro, roff(text));
}

/// Returns a paragraph with the bold term `term` before the indented text.
std::string tagged(const std::string& term, const std::string& text) {
  return formatted(".TP\n\\fB{}\\fR\n{}\n", roff(term), roff(text));
}

std::string table(const HelpRows& rows) {
  std::string text;
  for (const auto& [term, meaning] : rows) text += tagged(term, meaning);
  return text;
}

/// Returns `lines` without line filling, as in a terminal.
std::string verbatim(const std::vector<std::string>& lines) {
  std::string text = ".PP\n.RS 4\n.nf\n";
  for (const std::string& line : lines) text += roff(line) + '\n';
  return text + ".fi\n.RE\n";
}

/// Returns the keys of one section. The text of --help-all has one option per two-column indent,
/// followed by its meaning, allowed values, default and environment variable on lines of their own.
std::string keys_of(const ConfigSet& set, const std::string& section) {
  std::string text = heading("SS", formatted("[{}]", section));
  bool is_first = true;
  for (const std::string& line : split(set.help_text(section), '\n')) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (indent == line.size()) continue;
    const std::string words = line.substr(indent);
    if (indent == 2) {
      text += formatted(".TP\n\\fB{}\\fR\n", roff(words));
    } else {
      text += (is_first ? "" : ".br\n") + roff(words) + '\n';
    }
    is_first = indent == 2;
  }
  return text;
}

std::string configuration(const ConfigSet& set) {
  std::string text =
      heading("SH", "CONFIGURATION KEYS") +
      roff(
          "A key is given as --section.key VALUE, in a TOML file, or as TRIREME_SECTION_KEY in the "
          "environment. The command line wins over the environment, the environment over the last "
          "--config, the last --config over the first, then earlier values of the run, a preset, "
          "and the default.") +
      '\n';
  for (const std::string& section : set.sections()) text += keys_of(set, section);
  return text;
}

bool has_option(const CommandSpec& command, const std::string& name) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [&](const OptionSpec& option) { return option.name == name; });
}

std::string files(bool has_config, bool has_run) {
  HelpRows rows;
  if (has_config) rows.emplace_back("FILE of --config", "configuration keys in TOML format");
  if (has_run) {
    rows.insert(
        rows.end(),
        {{"RUN/config.toml", "the resolved configuration of a run"},
         {"RUN/metrics.jsonl", "the metrics of each step, one JSON object per line"},
         {"RUN/checkpoints/step-*", "the committed checkpoints"},
         {"RUN/status.json", "state, exit code and last committed step"},
         {"RUN/STOP", "create this file to save and to end a run, also for the job scripts"}});
  }
  rows.insert(rows.end(),
              {{"PREFIX/etc/trireme/env.sh", "settings of the site for the job scripts"},
               {"~/.config/trireme/env.sh", "settings of the user for the job scripts"}});
  return heading("SH", "FILES") + table(rows);
}

std::string environment(bool has_config) {
  HelpRows rows;
  if (has_config) {
    rows.emplace_back("TRIREME_SECTION_KEY",
                      "value of the configuration key section.key, for example TRIREME_OPTIM_LR");
  }
  rows.insert(
      rows.end(),
      {{"TRIREME_KERNEL_CACHE", "directory of compiled CUDA kernels (commands that use a GPU)"},
       {"TRIREME_ENV", "further file with settings for the job scripts; it wins over the others"},
       {"TRIREME_HOME", "directory that contains slurm/ with the job scripts"}});
  return heading("SH", "ENVIRONMENT") + table(rows);
}

std::string exit_status() {
  const auto row = [](ErrorKind kind, const char* text) {
    return std::pair(cat(exit_code(kind)), std::string(text));
  };
  return heading("SH", "EXIT STATUS") +
         table({{cat(kExitDone), "success"},
                row(ErrorKind::internal, "a bug of the program"),
                row(ErrorKind::usage, "wrong command line, configuration or layout"),
                row(ErrorKind::data, "an input is absent, unreadable or damaged"),
                row(ErrorKind::resource, "memory, disk, device or another resource is exhausted"),
                row(ErrorKind::comm, "a rank was lost, or the ranks hang"),
                row(ErrorKind::numeric, "the training diverged"),
                {cat(kExitStopped), "stopped on request after a save; the same command resumes"},
                {cat(kExitNoProgress), "no progress since the last restart (job scripts)"}});
}

}  // namespace

std::string ManualPages::page_name(const std::string& command) const {
  std::string name = command.empty() ? program_ : formatted("{}-{}", program_, command);
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string ManualPages::opening(const std::string& name, const std::string& help) const {
  std::string title = name;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  // Without hyphenation and with a ragged right margin, names stay whole.
  return formatted(
      ".TH {} 1 \"\" \"{}\" \"Trireme manual\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n"
      ".SH SYNOPSIS\n",
      roff(title), roff(version_), roff(name), roff(help));
}

std::string ManualPages::program(const std::vector<CommandSpec>& commands) const {
  std::string text = opening(program_, help_) + "\\fB" + roff(program_) +
                     "\\fR COMMAND [options]\n" + heading("SH", "COMMANDS");
  for (const CommandSpec& command : commands)
    text +=
        formatted(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_name(command.name)), roff(command.help));
  const bool has_config = std::any_of(commands.begin(), commands.end(),
                                      [](const CommandSpec& one) { return one.config != nullptr; });
  return text + heading("SH", "OPTIONS") +
         table({{"-h, --help", "list the commands"},
                {"-V, --version", "show the version; --version --json prints one JSON object"}}) +
         files(has_config, has_config) + environment(has_config) + exit_status();
}

std::string ManualPages::command(const CommandSpec& command) const {
  const std::string words = formatted("{} {}", program_, command.name);
  const std::string usage = CommandHelp(program_).usage(command);
  std::string text = opening(page_name(command.name), command.help) + "\\fB" + roff(words) +
                     "\\fR" + roff(usage.substr(words.size())) + '\n' +
                     heading("SH", "DESCRIPTION") + roff(sentence(command.help)) +
                     "\n.PP\nRanks: " + roff(CommandHelp::ranks(command)) + ".\n" +
                     heading("SH", "OPTIONS") + table(CommandHelp::options(command));
  if (command.config != nullptr) text += configuration(*command.config);
  const bool has_config = command.config != nullptr || command.settings_file == SettingsFile::toml;
  text += files(has_config, has_option(command, "--run")) + environment(command.config != nullptr) +
          exit_status();
  if (!command.examples.empty()) text += heading("SH", "EXAMPLES") + verbatim(command.examples);
  return text + heading("SH", "SEE ALSO") + "\\fB" + roff(program_) + "\\fR(1)\n";
}

std::map<std::string, std::string> ManualPages::all(
    const std::vector<CommandSpec>& commands) const {
  std::map<std::string, std::string> pages{{page_name("") + ".1", program(commands)}};
  for (const CommandSpec& one : commands) pages[page_name(one.name) + ".1"] = command(one);
  return pages;
}

}  // namespace trireme::config
