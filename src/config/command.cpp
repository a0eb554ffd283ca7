#include "config/command_line.hpp"
#include "core/number.hpp"

/// Command: what a program declares.
namespace trireme {
namespace {

std::string target_text(const OptionTarget& target) {
  if (const auto* const* integer = std::get_if<std::int64_t*>(&target))
    return std::to_string(**integer);
  if (const auto* const* number = std::get_if<double*>(&target)) return number_text(**number);
  if (const auto* const* text = std::get_if<std::string*>(&target)) return **text;
  return "";
}

}  // namespace

Command& Command::flag(const std::string& name, bool& target, const std::string& help) {
  spec_.options.push_back({name, "", help, &target, Need::optional, true, ""});
  return *this;
}

Command& Command::option(const std::string& name, OptionTarget target,
                         const std::string& placeholder, const std::string& help, Need need) {
  TRIREME_ASSERT(name.starts_with("--"));
  spec_.options.push_back({name, placeholder, help, target, need, false,
                           need == Need::required ? "" : target_text(target)});
  return *this;
}

Command& Command::positional(const std::string& placeholder, OptionTarget target,
                             const std::string& help, Need need) {
  TRIREME_ASSERT(spec_.positionals.empty() || !std::holds_alternative<std::vector<std::string>*>(
                                                  spec_.positionals.back().target));
  spec_.positionals.push_back({"", placeholder, help, target, need, false,
                               need == Need::required ? "" : target_text(target)});
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

}  // namespace trireme
