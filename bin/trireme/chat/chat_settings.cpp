#include "bin/trireme/chat/chat_settings.hpp"

#include <variant>
#include <vector>

#include "core/edit_distance.hpp"
#include "core/error.hpp"
#include "core/number.hpp"
#include "generate/sampling.hpp"

namespace trireme {
namespace {

struct ChatSetting {
  const char* name;
  std::variant<double*, std::int64_t*, bool*, std::optional<bool>*> value;
};

std::vector<ChatSetting> settings_of(ChatSettings& settings) {
  generate::SamplingConfig& sampling = settings.sampling;
  return {{"temperature", &sampling.temperature},
          {"top_k", &sampling.top_k},
          {"top_p", &sampling.top_p},
          {"min_p", &sampling.min_p},
          {"repetition_penalty", &sampling.repetition_penalty},
          {"presence_penalty", &sampling.presence_penalty},
          {"frequency_penalty", &sampling.frequency_penalty},
          {"seed", &sampling.seed},
          {"max_tokens", &settings.max_tokens},
          {"thinking", &settings.thinking},
          {"show_thoughts", &settings.show_thoughts}};
}

bool read_switch(std::string_view name, std::string_view value) {
  if (value == "on") return true;
  if (value == "off") return false;
  fail(ErrorKind::usage, "{} = {}, must be on or off", name, value);
}

}  // namespace

std::optional<bool> read_thinking(std::string_view value) {
  if (value == "auto") return std::nullopt;
  if (value == "on" || value == "off") return value == "on";
  fail(ErrorKind::usage, "thinking = {}, must be auto, on or off", value);
}

std::string ChatSettings::text() const {
  ChatSettings copy = *this;
  std::string lines;
  for (const ChatSetting& setting : settings_of(copy)) {
    std::string value;
    if (const auto* number = std::get_if<double*>(&setting.value)) value = number_text(**number);
    if (const auto* number = std::get_if<std::int64_t*>(&setting.value))
      value = std::to_string(**number);
    if (const auto* is_on = std::get_if<bool*>(&setting.value)) value = **is_on ? "on" : "off";
    if (const auto* is_on = std::get_if<std::optional<bool>*>(&setting.value))
      value = !(*is_on)->has_value() ? "auto" : (**is_on).value() ? "on" : "off";
    lines += formatted("{} {}\n", setting.name, value);
  }
  return lines;
}

void ChatSettings::check() const {
  if (max_tokens < 1) fail(ErrorKind::usage, "max_tokens = {}, must be 1 or more", max_tokens);
  if (const auto problem = generate::find_problem(sampling))
    fail(ErrorKind::usage, "{} = {}", problem->field, problem->message);
}

void ChatSettings::set(std::string_view name, std::string_view value) {
  ChatSettings changed = *this;
  std::vector<std::string> names;
  for (const ChatSetting& setting : settings_of(changed)) {
    names.emplace_back(setting.name);
    if (name != setting.name) continue;
    if (auto* const* number = std::get_if<double*>(&setting.value)) {
      const auto read = parse_number(value);
      if (!read) fail(ErrorKind::usage, "{} = {}, must be a number", name, value);
      **number = *read;
    } else if (auto* const* count = std::get_if<std::int64_t*>(&setting.value)) {
      const auto read = parse_integer(value);
      if (!read) fail(ErrorKind::usage, "{} = {}, must be a whole number", name, value);
      **count = *read;
    } else if (auto* const* is_on = std::get_if<bool*>(&setting.value)) {
      **is_on = read_switch(name, value);
    } else {
      changed.thinking = read_thinking(value);
    }
    changed.check();
    *this = changed;
    return;
  }
  fail(ErrorKind::usage, "no setting '{}'{}", name, did_you_mean(name, names));
}

}  // namespace trireme
