#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/fields.hpp"
#include "core/problems.hpp"

namespace trireme {

struct TomlEntry;

/// What an earlier part of a run was told, as its config.toml or its checkpoint keeps it.
struct EarlierValue {
  std::string key;
  std::string text;
  std::string origin;  // "runs/first/config.toml:12"
};

/// Of a TOML file that to_toml() wrote. Throws Error(usage) for what is not TOML.
std::vector<EarlierValue> earlier_values(std::string_view text, const std::string& where);

/// The configuration of one command: fields of component structs, and who set each.
///
/// Precedence, whatever the order of the calls:
///   command line > environment > last file > first file > a preset chosen anew
///     > earlier part of the run > preset > default
/// Usage: construct from fields_of(...) of every section, load, apply a preset if there is one, let
/// components check their structs into problems(), then finish(). Nothing but finish() throws for
/// what a user wrote, and it reports all of it at once. The structs must outlive the set.
class ConfigSet {
 public:
  /// Keys are "section.name". Throws Error(internal) if two are equal, or differ only so that their
  /// environment names agree.
  explicit ConfigSet(std::vector<Field> fields);
  ConfigSet(const ConfigSet&) = delete;  // problems() refers to this set
  ConfigSet(ConfigSet&&) = delete;
  ConfigSet& operator=(const ConfigSet&) = delete;
  ConfigSet& operator=(ConfigSet&&) = delete;
  ~ConfigSet() = default;

  /// Reads a TOML file; a later file wins over an earlier one. Problems: absent file, wrong syntax,
  /// unknown key or section, wrong type, a table where a value is expected, a key given twice.
  void load_file(const std::filesystem::path& path);
  /// The same for text, with `where` as its name in messages.
  void load_toml(std::string_view text, const std::string& where);

  /// Reads TRIREME_SECTION_NAME of every field ("TRIREME_OPTIM_LR"); an empty one counts as unset.
  /// An unknown variable of a known section, or one that is near a known name, is a problem:
  /// it was meant for us and would be ignored. Any other one is a warning.
  /// kProgramVariables are not configuration.
  void load_environment();

  /// From the command line; the last call for a key wins. `origin` is what the user typed
  /// ("--optim.lr", "--resume").
  void set(std::string_view key, std::string_view text, const std::string& origin);

  /// The field has what the command line gave it, as option `origin` ("--seq-len"), already.
  void mark_given(std::string_view key, const std::string& origin);

  /// Values of a preset: fields of another struct with the same keys ("preset minimind-3" as
  /// origin). Sets those that no other source has set; `anew`: also what an earlier part of the run
  /// was told, because it had another preset.
  void apply_preset(const std::vector<Field>& values, const std::string& origin, bool anew = false);

  /// What an earlier part of the run was told, where this command says nothing; of two calls the
  /// first wins. Unknown keys are another version's: a warning each. Returns what is wrong with a
  /// value, and has then set nothing; "" if all is well.
  std::string apply_earlier(const std::vector<EarlierValue>& values);

  /// A key that has no meaning beside the values of others (momentum, where the optimizer has none):
  /// it is not shown and not saved, and help still names it.
  void leave_out(std::string_view key, bool left_out = true);

  /// Where components and programs add what they find wrong; places are filled in from here, for
  /// keys ("optim.lr") and for options ("--seq-len").
  [[nodiscard]] Problems& problems() noexcept { return problems_; }

  [[nodiscard]] const Problems& problems() const noexcept { return problems_; }

  /// Throws one Error(usage) with every problem found so far, one a line.
  void finish() const { problems_.throw_if_any(); }

  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  /// "default", "preset NAME", "run.toml:12", "runs/first/config.toml:12", "TRIREME_OPTIM_LR" or
  /// "--optim.lr". Error(internal) on an unknown key.
  [[nodiscard]] const std::string& origin(std::string_view key) const;
  /// True when a file, the environment or the command line gave the key (not for a preset, nor for
  /// an earlier part of the run).
  [[nodiscard]] bool is_set(std::string_view key) const;

  [[nodiscard]] bool has(std::string_view key) const noexcept { return find(key) != nullptr; }

  /// The value as text.
  [[nodiscard]] std::string value(std::string_view key) const;

  /// The resolved configuration as TOML, every key by section but those left out; loads back to the
  /// same values bit for bit.
  [[nodiscard]] std::string to_toml() const;
  /// One key a line: "optim.lr  0.01  run.toml:3"; the last column only with `with_origin`.
  [[nodiscard]] std::string show(bool with_origin) const;

  /// The type of a key's value, as help names it: INT, NUMBER, BOOL or TEXT.
  [[nodiscard]] std::string placeholder(std::string_view key) const;

  [[nodiscard]] const std::string& help(std::string_view key) const { return at(key).field.help; }

  /// All keys of a section with placeholder, help, allowed values as far as a check has told them,
  /// default and environment name, for --help-all.
  [[nodiscard]] std::string help_text(std::string_view section) const;
  /// Section names in order of declaration.
  [[nodiscard]] std::vector<std::string> sections() const;
  /// Full keys, but those left out, or all names within one section, in order of declaration.
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::vector<std::string> names(std::string_view section) const;

  /// "; did you mean 'optim.lr'?" for an unknown key, also for one without its section ("lr"); ""
  /// if nothing is near.
  [[nodiscard]] std::string suggestion(std::string_view key) const;

 private:
  enum class Source { none, preset, earlier, preset_anew, file, environment, command_line };

  struct Entry {
    Field field;
    std::string default_text;
    std::string environment_name;
    Source source = Source::none;
    std::string origin = "default";
    bool left_out = false;
  };

  [[nodiscard]] const Entry* find(std::string_view key) const noexcept;
  Entry* find(std::string_view key) noexcept;
  [[nodiscard]] const Entry* find_option(std::string_view option) const;
  [[nodiscard]] const Entry& at(std::string_view key) const;
  void assign(Entry& entry, std::string_view text, Source source, const std::string& origin);
  /// False when the members of a table are not to be looked at.
  bool load_entry(const TomlEntry& value, const std::string& where);
  void check_unknown_variable(const std::string& name);

  std::vector<Entry> entries_;
  Problems problems_;
  std::vector<std::string> warnings_;
};

/// "TRIREME_OPTIM_LR" for "optim.lr".
std::string environment_name(std::string_view key);
/// "--seq-len" for "pack.seq_len": where keys are given as options.
std::string option_name(std::string_view key);
/// "optim" of "optim.lr", "lr" of "optim.lr".
std::string_view section_of(std::string_view key);
std::string_view name_of(std::string_view key);

}  // namespace trireme
