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

/// Programs with commands: `trireme pretrain --run DIR --optim.lr 1e-3`, `trireme checkpoint list
/// DIR`. command_line.cpp is the one place that sees CLI11.
namespace trireme {

enum class Need { optional, required };

/// How many ranks a command takes: one, or any number that mpirun or srun started, which share its
/// work.
enum class Ranks { one, all };

/// Whether the settings of a command may also be given as a TOML file.
enum class SettingsFile { none, toml };

/// What an option writes to: its value now is the default that help shows. A list takes one or more
/// values each time it is given, any other the last one.
using OptionTarget = FieldPointer;

struct OptionSpec {
  std::string name;         // "--output", "--output,-o"; "" for a positional
  std::string placeholder;  // "FILE", "DIR|FILE"; in lower case the values: "auto|cpu|cuda"
  std::string help;
  OptionTarget target;
  Need need = Need::optional;
  bool is_flag = false;  // takes no value
  std::string default_text;
  std::string key;  // "pack.seq_len" of a setting
};

struct AliasSpec {
  std::string option;  // "--resume"
  std::string key;     // "checkpoint.resume"
  Need need = Need::optional;
};

/// All that is declared of one command.
struct CommandSpec {
  std::string name;
  std::string help;
  std::vector<OptionSpec> options;
  std::vector<OptionSpec> positionals;
  std::vector<OptionSpec> rest;  // at most one
  std::vector<AliasSpec> aliases;
  std::vector<std::string> examples;
  ConfigSet* config = nullptr;
  std::shared_ptr<ConfigSet> settings;  // shared by the copies of this; null: none
  SettingsFile settings_file = SettingsFile::none;
  std::function<void(ConfigSet&)> check;  // of config or settings
  std::function<int()> body;
  Ranks ranks = Ranks::one;
};

/// Commands of two words with the same first one.
struct GroupSpec {
  std::string name;
  std::string help;
};

/// One command: its options and what it does. All references must outlive CommandLine::run.
/// Methods return *this, but settings().
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

  /// `name` as "--dry-run"; several as "--output,-o". `target` becomes true when it is given.
  Command& flag(const std::string& name, bool& target, const std::string& help);
  Command& option(const std::string& name, OptionTarget target, const std::string& placeholder,
                  const std::string& help, Need need = Need::optional);
  /// An argument by position; a list must be the last and takes the rest.
  Command& positional(const std::string& placeholder, OptionTarget target, const std::string& help,
                      Need need = Need::required);

  /// All that stands behind the word `--`, as it is.
  Command& rest(const std::string& placeholder, std::vector<std::string>& target,
                const std::string& help, Need need);

  /// An option for each field of a Config (core/fields.hpp), as its traits say: `seq_len` is
  /// --seq-len. Returned is what the options fill in before the body is called; check_config()
  /// adds what is wrong with it. With SettingsFile::toml there is --config FILE as well, whose
  /// [section] has the same keys; an option wins.
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
  /// add to problems() (an Error(usage) it throws is added as well); then all problems are thrown
  /// at once. The program logs warnings() itself, once its log knows the rank.
  Command& config(ConfigSet& set, std::function<void(ConfigSet&)> check = {});
  /// A short name of a key: alias("--resume", "checkpoint.resume").
  Command& alias(const std::string& option, const std::string& key, Need need = Need::optional);
  Command& example(const std::string& line);
  /// Where nothing is said, one.
  Command& ranks(Ranks ranks);
  Command& run(std::function<int()> body);

  [[nodiscard]] const CommandSpec& spec() const noexcept { return spec_; }

 private:
  void add_settings(std::vector<Field> fields, SettingsFile file,
                    std::function<void(Problems&)> check);

  CommandSpec spec_;
};

/// `PROGRAM help COMMAND` is `PROGRAM COMMAND --help`, and `completion SHELL` is
/// a command of every program.
class CommandLine {
 public:
  /// `version` is called for --version; its text goes to standard output.
  CommandLine(std::string program, std::string help, std::function<std::string()> version);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// Declares a command; `name` may have two words ("checkpoint list"). The reference stays valid.
  Command& command(const std::string& name, const std::string& help);
  /// What the commands that begin with `name` have in common, for the group's own page.
  void group(const std::string& name, const std::string& help);

  /// Ranks::all if the arguments start a command that runs on all ranks; help never does.
  [[nodiscard]] Ranks ranks(int argc, const char* const* argv) const;
  /// Throws Error(usage), saying what to type, if `num_ranks` are more than the command takes.
  void check_ranks(int argc, const char* const* argv, int num_ranks) const;

  /// Parses and returns what is left to do: with --help (-h), --help-all and --version (-V), of the
  /// program, a group or a command, to print a text to standard output. Throws one
  /// Error(usage) with every problem: unknown command, option or key with the nearest known one,
  /// missing or wrong values, and what ConfigSet and the command's check found.
  [[nodiscard]] std::function<int()> parse(int argc, const char* const* argv) const;

  /// Parses and does it; returns the exit code.
  int run(int argc, const char* const* argv) const { return parse(argc, argv)(); }

 private:
  [[nodiscard]] std::vector<CommandSpec> specs() const;
  [[nodiscard]] std::optional<CommandSpec> chosen(int argc, const char* const* argv) const;

  std::string program_;
  std::string help_;
  std::function<std::string()> version_;
  std::list<Command> commands_;
  std::vector<GroupSpec> groups_;
  std::string shell_;
  Command completion_;
};

}  // namespace trireme
