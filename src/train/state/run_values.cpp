#include "train/state/run_values.hpp"

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string text_of(const std::string& value) {
  return value;
}

std::string text_of(std::int64_t value) {
  return cat(value);
}

std::string text_of(double value) {
  return number_text(value);
}

bool parse(const std::string& text, std::optional<std::string>& value) {
  value = text;
  return true;
}

bool parse(const std::string& text, std::optional<std::int64_t>& value) {
  value = parse_integer(text);
  return value.has_value();
}

/// Parses a number. A validation loss may be infinite or NaN, which parse_number refuses.
bool parse(const std::string& text, std::optional<double>& value) {
  value = parse_number(text);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double special : {kInfinity, -kInfinity, kNan, -kNan}) {
    if (text == number_text(special)) value = special;
  }
  return value.has_value();
}

/// Returns the name inside a group; nullopt if the key does not belong to the group.
std::optional<std::string> name_in(const std::string& key, std::string_view prefix,
                                   std::string_view suffix) {
  if (!key.starts_with(prefix) || !key.ends_with(suffix)) return std::nullopt;
  if (key.size() < prefix.size() + suffix.size()) return std::nullopt;
  return key.substr(prefix.size(), key.size() - prefix.size() - suffix.size());
}

template <class T>
const char* key_of(const RunValues& values, std::optional<T> RunValues::*member) {
  const void* wanted = &(values.*member);
  const char* key = nullptr;
  RunValues::fields(values, [&](const char* name, const auto& value) {
    if (&value == wanted) key = name;
  });
  return key;
}

template <class T>
T required(const RunValues& values, std::optional<T> RunValues::*member) {
  const std::optional<T>& value = values.*member;
  if (!value) {
    fail(ErrorKind::data, "the checkpoint has no value '{}': it is not one of a training run",
         key_of(values, member));
  }
  return *value;
}

}  // namespace

RunValues RunValues::from_values(const Texts& values) {
  RunValues result;
  Texts rest = values;
  fields(result, [&](const char* key, auto& member) {
    const auto found = rest.extract(key);
    if (found.empty() || parse(found.mapped(), member)) return;
    fail(ErrorKind::data, "the checkpoint's value '{}' is '{}', expected a number", key,
         found.mapped());
  });
  for (const auto& [key, text] : rest) {
    bool is_taken = false;
    groups(result, [&](const char* prefix, const char* suffix, Texts& group) {
      if (is_taken) return;
      const auto name = name_in(key, prefix, suffix);
      is_taken = name.has_value();
      if (is_taken) group[*name] = text;
    });
  }
  return result;
}

RunValues::Texts RunValues::to_values() const {
  Texts values;
  fields(*this, [&](const char* key, const auto& member) {
    if (member) values[key] = text_of(*member);
  });
  groups(*this, [&](const char* prefix, const char* suffix, const Texts& group) {
    for (const auto& [name, text] : group) values[cat(prefix, name, suffix)] = text;
  });
  return values;
}

std::optional<std::string> RunValues::configured(const std::string& key) const {
  const auto found = config.find(key);
  return found == config.end() ? std::nullopt : std::optional(found->second);
}

std::int64_t number_in(const RunValues& values, std::optional<std::int64_t> RunValues::*member,
                       std::int64_t least, std::int64_t most) {
  const std::int64_t value = required(values, member);
  if (value < least || value > most) {
    fail(ErrorKind::data, "the checkpoint's value '{}' is {}, must be in [{}, {}]",
         key_of(values, member), value, least, most);
  }
  return value;
}

void put_progress(RunValues& values, const Progress& progress, const optim::LossScaler& scaler) {
  values.step = progress.step;
  values.update = progress.update;
  values.next_sample = progress.next_sample;
  values.tokens = progress.tokens;
  values.loss_scale = scaler.scale();
  values.good_steps = scaler.good_steps();
}

std::int64_t saved_next_sample(const RunValues& values) {
  return number_in(values, &RunValues::next_sample, 0, kMost);
}

Progress load_progress(const RunValues& values, std::int64_t step, optim::LossScaler& scaler) {
  if (scaler.dynamic()) {
    const double scale = required(values, &RunValues::loss_scale);
    if (!(scale > 0 && std::isfinite(scale))) {
      fail(ErrorKind::data, "the checkpoint's value '{}' is {}, must be above 0",
           key_of(values, &RunValues::loss_scale), scale);
    }
    scaler.restore(scale, number_in(values, &RunValues::good_steps, 0, kMost));
  }
  return {number_in(values, &RunValues::step, step, step),
          number_in(values, &RunValues::update, 0, step), saved_next_sample(values),
          number_in(values, &RunValues::tokens, 0, kMost)};
}

}  // namespace trireme::train
