#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "config/command_line.hpp"
#include "config/value.hpp"
#include "core/edit_distance.hpp"
#include "core/join.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::config {
namespace {

/// Returns true for an option of the scheduler, which users may put after the job script by
/// mistake.
bool is_of_scheduler(std::string_view option) {
  const auto names = scheduler::scheduler().option_names();
  return std::find(names.begin(), names.end(), option) != names.end();
}

/// Reads the arguments of one command into its targets and its ConfigSet.
class Parser {
 public:
  explicit Parser(const CommandSpec& command) : command_(command) {
    app_.allow_extras();  // report_extras() explains unknown options
    app_.set_help_flag("-h,--help");
    app_.set_help_all_flag("--help-all");
    app_.set_version_flag("-V,--version", "");
    for (const OptionSpec& option : command.options) declare(option);
    for (const OptionSpec& option : command.positionals) declare(option);
    if (command.config != nullptr) declare_config(*command.config);
    if (command.settings_file == SettingsFile::toml) files_ = add("--config", false);
  }

  /// Adds all problems to `problems`.
  ParseOutcome parse(std::vector<std::string> arguments, Problems& problems) {
    const std::vector<std::string> rest = cut_rest(arguments);
    try {
      while (!parse_or_drop(arguments, problems)) {
      }
    } catch (const CLI::CallForHelp&) {
      return ParseOutcome::help;
    } catch (const CLI::CallForAllHelp&) {
      return ParseOutcome::help_all;
    } catch (const CLI::CallForVersion&) {
      return ParseOutcome::version;
    } catch (const CLI::ParseError& error) {
      problems.add(error.what());
      return ParseOutcome::run;
    }
    report_extras(problems);
    take_rest(rest, problems);
    if (command_.settings) load_files(*command_.settings);
    for (const Bound& bound : bound_) take(bound, problems);
    if (command_.config != nullptr) fill_config(*command_.config);
    return ParseOutcome::run;
  }

 private:
  /// Removes `--` and all that follows from the arguments and returns the words after `--`.
  [[nodiscard]] std::vector<std::string> cut_rest(std::vector<std::string>& arguments) const {
    const auto at = command_.rest.empty() ? arguments.end()
                                          : std::find(arguments.begin(), arguments.end(), "--");
    if (at == arguments.end()) return {};
    std::vector<std::string> rest(at + 1, arguments.end());
    arguments.erase(at, arguments.end());
    return rest;
  }

  void take_rest(const std::vector<std::string>& rest, Problems& problems) const {
    for (const OptionSpec& spec : command_.rest) {
      if (rest.empty() && spec.need == Need::required)
        problems.add(formatted("-- {} is required: {}", spec.placeholder, spec.help));
      *std::get<std::vector<std::string>*>(spec.target) = rest;
    }
  }

  /// Parses the arguments. If an option has no value, adds a problem, removes the option from the
  /// arguments and returns false, so that the caller can parse the rest again.
  bool parse_or_drop(std::vector<std::string>& arguments, Problems& problems) {
    try {
      app_.parse(prepared(arguments));
      return true;
    } catch (const CLI::ArgumentMismatch& error) {
      const std::string text = error.what();  // "--optim.lr: 1 required TEXT missing"
      const std::string name = text.substr(0, text.find(':'));
      const CLI::Option* option = app_.get_option_no_throw(name);
      const auto has_no_value = [&](const std::string& word) {
        const std::string* next = &word + 1;
        return option != nullptr && option->check_name(word) &&
               (next == arguments.data() + arguments.size() || next->starts_with("--"));
      };
      const auto found = std::find_if(arguments.begin(), arguments.end(), has_no_value);
      if (found == arguments.end()) throw;
      problems.add(formatted("{} needs a value", *found));
      arguments.erase(found);
      return false;
    }
  }

  /// Returns the arguments in the form of CLI11: in reverse order, and `--name=` split into two
  /// words, because CLI11 would take the next argument as its value.
  static std::vector<std::string> prepared(const std::vector<std::string>& arguments) {
    std::vector<std::string> result;
    for (const std::string& word : arguments) {
      const bool empty_value = word.starts_with("--") && word.find('=') == word.size() - 1;
      result.push_back(empty_value ? word.substr(0, word.size() - 1) : word);
      if (empty_value) result.emplace_back();
    }
    std::reverse(result.begin(), result.end());
    return result;
  }

  struct Bound {
    CLI::Option* option;
    const OptionSpec* spec;
  };

  struct BoundKey {
    CLI::Option* option;
    std::string key;
    std::vector<std::string> names;  // full name first
  };

  CLI::Option* add(const std::string& name, bool is_list) {
    // Values are read from results() afterwards, so that all sources share one parser and its
    // messages.
    CLI::Option* option =
        app_.add_option(name, CLI::callback_t([](const CLI::results_t&) { return true; }));
    // The limit is below CLI11's "unlimited", at which it would split a value like "[a,b]".
    option->type_size(1)
        ->expected(1, is_list ? 1 << 20 : 1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    return option;
  }

  void declare(const OptionSpec& spec) {
    if (spec.is_flag) {
      bound_.push_back({app_.add_flag(spec.name), &spec});
      return;
    }
    const bool is_list = std::holds_alternative<std::vector<std::string>*>(spec.target);
    const std::string name =
        spec.name.empty() ? formatted("positional{}", bound_.size()) : spec.name;
    bound_.push_back({add(name, is_list), &spec});
    // Without this, CLI11 gives a positional argument one value only.
    if (spec.name.empty() && is_list) bound_.back().option->allow_extra_args();
  }

  void declare_config(const ConfigSet& set) {
    files_ = add("--config", false);
    for (const std::string& key : set.keys()) {
      BoundKey bound{nullptr, key, {"--" + key}};
      for (const AliasSpec& alias : command_.aliases) {
        if (alias.key == key) bound.names.push_back(alias.option);
      }
      bound.option = add(joined(bound.names, ","), false);
      keys_.push_back(bound);
    }
  }

  [[nodiscard]] std::vector<std::string> known_options() const {
    std::vector<std::string> names{"--help", "--help-all", "--version"};
    for (const CLI::Option* option : app_.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return names;
  }

  void report_extras(Problems& problems) const {
    const std::vector<std::string> extras = app_.remaining();
    const auto is_option = [](const std::string& word) {
      return word.size() > 1 && word[0] == '-';
    };
    const bool any_option = std::any_of(extras.begin(), extras.end(), is_option);
    for (const std::string& word : extras) {
      if (is_option(word)) {
        const std::string name = word.substr(0, word.find('='));
        problems.add(formatted("unknown option '{}'{}", name,
                               is_of_scheduler(name)
                                   ? formatted("; options of {} stand before the job script: "
                                               "{} {}=VALUE SCRIPT ...",
                                               scheduler::scheduler().words().name,
                                               scheduler::scheduler().words().submit, name)
                                   : suggestion(name)));
      } else if (!any_option) {  // after an unknown option, the word is probably its value
        problems.add(formatted("unexpected argument '{}'", word));
      }
    }
  }

  [[nodiscard]] std::string suggestion(const std::string& option) const {
    const std::string near = did_you_mean(option, known_options());
    if (!near.empty() || command_.config == nullptr) return near;
    const std::string key = option.substr(
        option.find_first_not_of('-') == std::string::npos ? 0 : option.find_first_not_of('-'));
    const std::string by_key = command_.config->suggestion(key);
    const std::size_t quote = by_key.find('\'');
    return quote == std::string::npos
               ? ""
               : formatted("{}--{}", by_key.substr(0, quote + 1), by_key.substr(quote + 1));
  }

  static bool names_a_place(const OptionSpec& spec) {
    return spec.name.empty() || spec.placeholder.find("DIR") != std::string::npos ||
           spec.placeholder.find("FILE") != std::string::npos;
  }

  void take(const Bound& bound, Problems& problems) const {
    const OptionSpec& spec = *bound.spec;
    const std::string name =
        spec.name.empty() ? spec.placeholder : spec.name.substr(0, spec.name.find(','));
    const bool given = bound.option->count() != 0;
    const bool in_file = !given && !spec.key.empty() && command_.settings->is_set(spec.key);
    if (!given && !in_file) {
      if (spec.need == Need::required)
        problems.add(formatted("{}{} is required: {}", name,
                               spec.name.empty() ? "" : " " + spec.placeholder, spec.help));
      return;
    }
    if (given && !spec.key.empty()) command_.settings->mark_given(spec.key, name);
    const std::string names_nothing =
        formatted("{} '' names nothing (an unset variable?): {}", name, spec.help);
    if (in_file) {
      if (spec.need == Need::required && command_.settings->value(spec.key).empty())
        problems.add(names_nothing);
      return;
    }
    const std::vector<std::string> values = bound.option->results();
    if (names_a_place(spec) && std::find(values.begin(), values.end(), "") != values.end()) {
      problems.add(names_nothing);
      return;
    }
    if (auto* const* list = std::get_if<std::vector<std::string>*>(&spec.target)) {
      **list = values;
      return;
    }
    const std::string wrong = assign_text(spec.target, values.back());
    if (!wrong.empty()) problems.add(formatted("{} {}: {}", name, values.back(), wrong));
  }

  void load_files(ConfigSet& set) const {
    if (files_ == nullptr || files_->count() == 0) return;
    for (const std::string& file : files_->results()) set.load_file(file);
  }

  void fill_config(ConfigSet& set) const {
    load_files(set);
    set.load_environment();
    for (const BoundKey& bound : keys_) {
      if (bound.option->count() == 0) continue;
      set.set(bound.key, bound.option->results().back(), bound.names.front());
    }
    for (const AliasSpec& alias : command_.aliases) {
      if (alias.need == Need::required && !set.is_set(alias.key)) {
        set.problems().add(
            formatted("{} is required (or {} in the configuration)", alias.option, alias.key));
      }
    }
  }

  const CommandSpec& command_;
  CLI::App app_;
  CLI::Option* files_ = nullptr;
  std::vector<Bound> bound_;
  std::vector<BoundKey> keys_;
};

}  // namespace

ParseOutcome parse_command(const CommandSpec& command, std::vector<std::string> arguments,
                           Problems& problems) {
  return Parser(command).parse(std::move(arguments), problems);
}

}  // namespace trireme::config
