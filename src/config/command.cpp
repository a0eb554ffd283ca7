#include "config/command_line.hpp"
#include "config/value.hpp"
#include "core/join.hpp"

/// Command: the declaration of one command.
namespace trireme::config {
namespace {

/// Returns "FILE", or the allowed values: "auto|cpu|cuda".
std::string placeholder_of(const FieldTraits& traits) {
  std::vector<std::string> words = traits.values;
  if (!traits.placeholder.empty()) words.insert(words.begin(), traits.placeholder);
  return joined(words, "|");
}

std::string target_text(const OptionTarget& target) {
  return std::holds_alternative<bool*>(target) ? "" : value_text(target);
}

}  // namespace

Command& Command::flag(const std::string& name, bool& target, const std::string& help) {
  spec_.options.push_back({name, "", help, &target, Need::optional, true, "", ""});
  return *this;
}

Command& Command::option(const std::string& name, OptionTarget target,
                         const std::string& placeholder, const std::string& help, Need need) {
  TRIREME_ASSERT(name.starts_with("--"));
  spec_.options.push_back({name, placeholder, help, target, need, false,
                           need == Need::required ? "" : target_text(target), ""});
  return *this;
}

Command& Command::positional(const std::string& placeholder, OptionTarget target,
                             const std::string& help, Need need) {
  TRIREME_ASSERT(spec_.positionals.empty() || !std::holds_alternative<std::vector<std::string>*>(
                                                  spec_.positionals.back().target));
  spec_.positionals.push_back({"", placeholder, help, target, need, false,
                               need == Need::required ? "" : target_text(target), ""});
  return *this;
}

Command& Command::rest(const std::string& placeholder, std::vector<std::string>& target,
                       const std::string& help, Need need) {
  spec_.rest = {{"--", placeholder, help, &target, need, false, "", ""}};
  return *this;
}

Command& Command::config(ConfigSet& set, std::function<void(ConfigSet&)> check) {
  spec_.config = &set;
  spec_.check = std::move(check);
  return *this;
}

Command& Command::alias(const std::string& option, const std::string& key, Need need) {
  TRIREME_ASSERT(spec_.config != nullptr && spec_.config->has(key));
  spec_.aliases.push_back({option, key, need});
  return *this;
}

void Command::add_settings(std::vector<Field> fields, SettingsFile file,
                           std::function<void(Problems&)> check) {
  TRIREME_ASSERT(spec_.config == nullptr && !spec_.settings);
  for (const Field& field : fields) {
    const FieldTraits& traits = field.traits;
    OptionSpec option{traits.positional ? "" : option_name(field.key),
                      placeholder_of(traits),
                      field.help,
                      field.value,
                      traits.required ? Need::required : Need::optional,
                      false,
                      "",
                      field.key};
    option.is_flag = std::holds_alternative<bool*>(field.value) && option.placeholder.empty();
    if (!option.is_flag && !traits.required) option.default_text = value_text(field.value);
    (traits.positional ? spec_.positionals : spec_.options).push_back(std::move(option));
  }
  spec_.settings = std::make_shared<ConfigSet>(std::move(fields));
  spec_.settings_file = file;
  spec_.check = [check = std::move(check)](ConfigSet& set) { check(set.problems()); };
}

Command& Command::example(const std::string& line) {
  spec_.examples.push_back(line);
  return *this;
}

Command& Command::ranks(Ranks ranks) {
  spec_.ranks = ranks;
  return *this;
}

Command& Command::run(std::function<int()> body) {
  spec_.body = std::move(body);
  return *this;
}

}  // namespace trireme::config
