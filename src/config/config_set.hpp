#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/fields.hpp"
#include "core/problems.hpp"

namespace trireme::config {

struct TomlEntry;

/// One configuration value of an earlier part of a run, read from its config.toml or checkpoint.
struct EarlierValue {
  std::string key;
  std::string text;
  std::string origin;  // "runs/first/config.toml:12"
};

/// Reads the values of a TOML file that to_toml() wrote. Throws Error(usage) for invalid TOML.
std::vector<EarlierValue> earlier_values(std::string_view text, const std::string& where);

/// The configuration of one command: the fields of component structs and the source of each value.
///
/// Precedence, independent of the order of the calls:
///   command line > environment > last file > first file > a newly chosen preset
///     > earlier part of the run > preset > default
/// Usage: construct the set from fields_of(...) of every section, load all sources, apply a preset
/// if there is one, let components add to problems(), then call finish(). Only finish() throws for
/// mistakes of the user, and it reports all of them at once. The structs must outlive the set.
class ConfigSet {
 public:
  /// Keys are "section.name". Throws Error(internal) if two keys have the same environment
  /// variable.
  explicit ConfigSet(std::vector<Field> fields);
  ConfigSet(const ConfigSet&) = delete;  // problems() refers to this set
  ConfigSet(ConfigSet&&) = delete;
  ConfigSet& operator=(const ConfigSet&) = delete;
  ConfigSet& operator=(ConfigSet&&) = delete;
  ~ConfigSet() = default;

  /// Reads a TOML file; a later file wins over an earlier one. Problems: missing file, wrong
  /// syntax, unknown key or section, wrong type, a table in place of a value, a duplicate key.
  void load_file(const std::filesystem::path& path);
  /// Reads TOML text like load_file; `where` is its name in messages.
  void load_toml(std::string_view text, const std::string& where);

  /// Reads TRIREME_SECTION_NAME of every field ("TRIREME_OPTIM_LR"); an empty variable counts as
  /// unset. An unknown variable of a known section, or one with a name similar to a known one, is a
  /// problem, because the program would silently ignore it. Any other unknown variable gives a
  /// warning. kProgramVariables are not configuration.
  void load_environment();

  /// Sets a key from the command line; the last call for a key wins. `origin` is the option that
  /// the user typed ("--optim.lr", "--resume").
  void set(std::string_view key, std::string_view text, const std::string& origin);

  /// Records that the command line has already set the field with the option `origin`
  /// ("--seq-len").
  void mark_given(std::string_view key, const std::string& origin);

  /// Applies a preset: `values` are fields of another struct with the same keys, `origin` is
  /// "preset minimind-3". Sets the keys that no other source has set. With `replaces_earlier`, the
  /// preset also replaces values of an earlier part of the run, which had another preset.
  void apply_preset(const std::vector<Field>& values, const std::string& origin,
                    bool replaces_earlier = false);

  /// Applies values of an earlier part of the run to keys that this command does not set; the first
  /// of two calls wins. An unknown key, which another version wrote, gives a warning. If a value is
  /// invalid, sets nothing and returns the reason; else returns "".
  std::string apply_earlier(const std::vector<EarlierValue>& values);

  /// Hides a key that has no effect with the current values of other keys (momentum of an optimizer
  /// without momentum): it is neither shown nor saved, but help still lists it.
  void leave_out(std::string_view key, bool left_out = true);

  /// The list to which components and programs add problems. The set adds the origin of each key
  /// ("optim.lr") or option ("--seq-len").
  [[nodiscard]] Problems& problems() noexcept { return problems_; }

  [[nodiscard]] const Problems& problems() const noexcept { return problems_; }

  /// Throws one Error(usage) with all problems found so far, one per line.
  void finish() const { problems_.throw_if_any(); }

  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  /// Returns the source of a key: "default", "preset NAME", "run.toml:12",
  /// "runs/first/config.toml:12", "TRIREME_OPTIM_LR" or "--optim.lr". Throws Error(internal) for an
  /// unknown key.
  [[nodiscard]] const std::string& origin(std::string_view key) const;
  /// Returns true if a file, the environment or the command line set the key; false for a preset or
  /// an earlier part of the run.
  [[nodiscard]] bool is_set(std::string_view key) const;

  [[nodiscard]] bool has(std::string_view key) const noexcept { return find(key) != nullptr; }

  [[nodiscard]] std::string value(std::string_view key) const;

  /// Returns the resolved configuration as TOML by section, without the keys that are left out.
  /// Loading it gives the same values bit for bit.
  [[nodiscard]] std::string to_toml() const;
  /// Returns one line per key: "optim.lr  0.01  run.toml:3"; the last column only with
  /// `with_origin`.
  [[nodiscard]] std::string show(bool with_origin) const;

  /// Returns the type of a key in help: INT, NUMBER, BOOL or TEXT.
  [[nodiscard]] std::string placeholder(std::string_view key) const;

  [[nodiscard]] const std::string& help(std::string_view key) const { return at(key).field.help; }

  /// Returns the text of --help-all for a section: all keys with type, help, allowed values that a
  /// check has registered, default and environment variable.
  [[nodiscard]] std::string help_text(std::string_view section) const;
  /// These functions return the sections, the full keys without those left out, and all names of
  /// one section, each in order of declaration.
  [[nodiscard]] std::vector<std::string> sections() const;
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::vector<std::string> names(std::string_view section) const;

  /// Returns "; did you mean 'optim.lr'?" for an unknown key, also for one without its section
  /// ("lr"); "" if no known key is similar.
  [[nodiscard]] std::string suggestion(std::string_view key) const;

 private:
  enum class Source { none, preset, earlier, new_preset, file, environment, command_line };

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
  /// Loads one entry. Returns false if the members of this table must be skipped.
  bool load_entry(const TomlEntry& value, const std::string& where);
  void check_unknown_variable(const std::string& name);

  std::vector<Entry> entries_;
  Problems problems_;
  std::vector<std::string> warnings_;
};

/// Returns "TRIREME_OPTIM_LR" for "optim.lr".
std::string environment_name(std::string_view key);
/// Returns the option of a setting: "--seq-len" for "pack.seq_len".
std::string option_name(std::string_view key);
/// These functions return "optim" and "lr" for "optim.lr".
std::string_view section_of(std::string_view key);
std::string_view name_of(std::string_view key);

}  // namespace trireme::config
