#pragma once
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/check_options.hpp"
#include "config/config_set.hpp"

/// Command lines of programs with commands: `trireme pretrain --run DIR --optim.lr 1e-3`, `trireme
/// checkpoint list DIR`. Only command_parser.cpp uses CLI11.
namespace trireme::config {

enum class Need { optional, required };

/// The ranks of a command: one, or all that mpirun or srun started, which share its work.
enum class Ranks { one, all };

/// `toml`: the settings of a command may also be given in a TOML file.
enum class SettingsFile { none, toml };

/// The variable that an option writes to; its initial value is the default that help shows. A list
/// collects one or more values for each use of the option, any other type keeps the last value.
using OptionTarget = FieldPointer;

struct OptionSpec {
  std::string name;         // "--output", "--output,-o"; "" for a positional
  std::string placeholder;  // "FILE", "DIR|FILE"; allowed values in lower case: "auto|cpu|cuda"
  std::string help;
  OptionTarget target;
  Need need = Need::optional;
  bool is_flag = false;  // takes no value
  std::string default_text;
  std::string key;  // key of a setting: "pack.seq_len"
};

struct AliasSpec {
  std::string option;  // "--resume"
  std::string key;     // "checkpoint.resume"
  Need need = Need::optional;
};

/// The declaration of one command.
struct CommandSpec {
  std::string name;
  std::string help;
  std::vector<OptionSpec> options;
  std::vector<OptionSpec> positionals;
  std::vector<OptionSpec> rest;  // at most one
  std::vector<AliasSpec> aliases;
  std::vector<std::string> examples;
  ConfigSet* config = nullptr;
  std::shared_ptr<ConfigSet> settings;  // shared by copies of this object; null: none
  SettingsFile settings_file = SettingsFile::none;
  std::function<void(ConfigSet&)> check;  // checks config or settings
  std::function<int()> body;
  Ranks ranks = Ranks::one;
};

/// A group of commands of two words that share their first word.
struct GroupSpec {
  std::string name;
  std::string help;
};

/// One command: its options and its body. All references must outlive CommandLine::run. All methods
/// except settings() return *this.
///
///   Command& command = line.command("tokenizer train", "learn a tokenizer from text");
///   const auto config = command.settings<TrainTokenizerConfig>("train");
///   command.example("trireme-data tokenizer train --input a.jsonl --output tok")
///       .run([config] { return train(*config); });
class Command {
 public:
  Command(std::string name, std::string help) {
    spec_.name = std::move(name);
    spec_.help = std::move(help);
  }

  /// `name`: "--dry-run", or several names: "--output,-o". `target` becomes true if the flag is
  /// given.
  Command& flag(const std::string& name, bool& target, const std::string& help);
  Command& option(const std::string& name, OptionTarget target, const std::string& placeholder,
                  const std::string& help, Need need = Need::optional);
  /// Declares a positional argument; a list must be the last one and takes all remaining arguments.
  Command& positional(const std::string& placeholder, OptionTarget target, const std::string& help,
                      Need need = Need::required);

  /// Declares the arguments after the word `--`, which are passed on unparsed.
  Command& rest(const std::string& placeholder, std::vector<std::string>& target,
                const std::string& help, Need need);

  /// Declares an option for each field of a Config (core/fields.hpp), as its traits say: `seq_len`
  /// becomes --seq-len. Returns the Config, which the options fill in before the body runs;
  /// check_config() adds its problems. With SettingsFile::toml, `section` of a --config FILE has
  /// the same keys, and options win over files.
  template <class Config>
  std::shared_ptr<const Config> settings(const std::string& section,
                                         SettingsFile file = SettingsFile::none) {
    const auto config = std::make_shared<Config>();  // shared with the body
    add_settings(fields_of(section, *config), file,
                 [config](Problems& problems) { check_config(*config, problems); });
    return config;
  }

  /// Adds --config FILE (repeatable) and --section.key VALUE for every key, and reads the
  /// environment. `check` runs after all sources are read: it applies presets and lets components
  /// add to problems(); an Error(usage) that it throws is added, too. Then all problems are thrown
  /// at once. The program itself logs warnings() when its log knows the rank.
  Command& config(ConfigSet& set, std::function<void(ConfigSet&)> check = {});
  /// Declares a short name for a key: alias("--resume", "checkpoint.resume").
  Command& alias(const std::string& option, const std::string& key, Need need = Need::optional);
  Command& example(const std::string& line);
  /// Sets the ranks of the command; the default is one.
  Command& ranks(Ranks ranks);
  Command& run(std::function<int()> body);

  [[nodiscard]] const CommandSpec& spec() const noexcept { return spec_; }

 private:
  void add_settings(std::vector<Field> fields, SettingsFile file,
                    std::function<void(Problems&)> check);

  CommandSpec spec_;
};

/// The command line of a program. `PROGRAM help COMMAND` is `PROGRAM COMMAND --help`, and every
/// program has the commands `completion SHELL` and `man COMMAND`.
class CommandLine {
 public:
  /// `version` returns the text that --version prints; its first line is the program and its
  /// version. `version_json` returns the line that `--version --json` prints.
  CommandLine(std::string program, std::string help, std::function<std::string()> version,
              std::function<std::string()> version_json = {});
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// Declares a command; `name` may have two words ("checkpoint list"). The reference stays valid.
  Command& command(const std::string& name, const std::string& help);
  /// Declares the group of all commands that begin with `name`; `help` is the title of its help
  /// page.
  void group(const std::string& name, const std::string& help);

  /// Ranks::all if the arguments start a command that runs on all ranks; help never does.
  [[nodiscard]] Ranks ranks(int argc, const char* const* argv) const;
  /// Throws Error(usage) with the correct command line if the command takes fewer than `num_ranks`
  /// ranks.
  void check_ranks(int argc, const char* const* argv, int num_ranks) const;

  /// Parses the arguments and returns the function to run: the body of the command, or a function
  /// that prints help or the version to standard output. Throws one Error(usage) with all problems:
  /// unknown commands, options or keys with the nearest known name, missing or invalid values, and
  /// the problems that ConfigSet and the command's check found.
  [[nodiscard]] std::function<int()> parse(int argc, const char* const* argv) const;

  /// Parses the arguments and runs the command; returns the exit code.
  int run(int argc, const char* const* argv) const { return parse(argc, argv)(); }

 private:
  [[nodiscard]] std::vector<CommandSpec> specs() const;
  [[nodiscard]] std::optional<CommandSpec> chosen(int argc, const char* const* argv) const;
  /// Returns all specs after their checks have registered the allowed values of keys.
  [[nodiscard]] std::vector<CommandSpec> checked_specs() const;
  int print_manual() const;

  std::string program_;
  std::string help_;
  std::function<std::string()> version_;
  std::function<std::string()> version_json_;
  std::list<Command> commands_;
  std::vector<GroupSpec> groups_;
  std::string shell_;
  Command completion_;
  std::vector<std::string> manual_words_;
  std::string manual_output_;
  Command manual_;
};

enum class ParseOutcome { run, help, help_all, version };

/// Parses `arguments`, the words after the name of the command, into the targets of its options,
/// and config files, environment and keys into its ConfigSet. Adds all problems to `problems`. For
/// CommandLine::parse only.
ParseOutcome parse_command(const CommandSpec& command, std::vector<std::string> arguments,
                           Problems& problems);

}  // namespace trireme::config
