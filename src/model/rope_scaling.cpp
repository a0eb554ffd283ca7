#include "model/rope_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::model {
namespace {

using Kind = RopeScaling::Kind;

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  fail(
      ErrorKind::usage,
      "model.rope_scaling = '{}': {}; it must be empty, or as yarn,factor=16,original_max_position_embeddings=2048[,beta_fast=32,beta_slow=1,attention_factor=1,truncate=true], or as llama3,factor=8,original_max_position_embeddings=8192[,low_freq_factor=1,high_freq_factor=4]",
      text, why);
}

template <class Scaling, class Visit>
void visit_values(Scaling& scaling, Visit&& visit) {
  visit("factor", scaling.factor);
  visit("original_max_position_embeddings", scaling.original_max);
  if (scaling.kind == Kind::yarn) {
    visit("beta_fast", scaling.beta_fast);
    visit("beta_slow", scaling.beta_slow);
    visit("attention_factor", scaling.attention_factor);
    visit("truncate", scaling.truncate);
  } else {
    visit("low_freq_factor", scaling.low_freq_factor);
    visit("high_freq_factor", scaling.high_freq_factor);
  }
}

bool read_value(std::string_view text, double& value) {
  const auto number = parse_number(text);
  value = number.value_or(0);
  return number && value > 0;
}

bool read_value(std::string_view text, std::int64_t& value) {
  const auto number = parse_integer(text);
  value = number.value_or(0);
  return number && value > 0;
}

bool read_value(std::string_view text, bool& value) {
  value = text == "true";
  return text == "true" || text == "false";
}

std::string value_text(double value) {
  return number_text(value);
}

std::string value_text(std::int64_t value) {
  return cat(value);
}

std::string value_text(bool value) {
  return value ? "true" : "false";
}

/// Returns the text before the next comma and removes it from `rest`.
std::string_view next_part(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(','), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

void check_borders(std::string_view text, const RopeScaling& scaling) {
  if (scaling.factor < 1) refuse(text, "factor is below 1");
  if (scaling.kind == Kind::yarn && scaling.beta_fast < scaling.beta_slow)
    refuse(text, "beta_fast is below beta_slow");
  if (scaling.kind == Kind::llama3 && scaling.high_freq_factor <= scaling.low_freq_factor)
    refuse(text, "high_freq_factor is not above low_freq_factor");
}

/// Returns the index at which the frequency makes `turns` rotations over the original length.
double index_of_turns(double turns, std::int64_t head_dim, double theta, double original_max) {
  return static_cast<double>(head_dim) * std::log(original_max / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

void scale_yarn(std::vector<double>& frequencies, std::int64_t head_dim, double theta,
                const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max);
  double low = index_of_turns(scaling.beta_fast, head_dim, theta, original);
  double high = index_of_turns(scaling.beta_slow, head_dim, theta, original);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / scaling.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

void scale_llama3(std::vector<double>& frequencies, const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max);
  for (double& frequency : frequencies) {
    const double turns = original * frequency / (2 * std::numbers::pi);
    if (turns > scaling.high_freq_factor) continue;
    const double smooth = std::max(0.0, (turns - scaling.low_freq_factor) /
                                            (scaling.high_freq_factor - scaling.low_freq_factor));
    frequency = (1 - smooth) * frequency / scaling.factor + smooth * frequency;
  }
}

}  // namespace

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeScaling parse_rope_scaling(std::string_view text) {
  RopeScaling scaling;
  if (text.empty()) return scaling;
  std::string_view rest = text;
  const std::string_view name = next_part(rest);
  if (name != "yarn" && name != "llama3") refuse(text, formatted("'{}' is not known", name));
  scaling.kind = name == "yarn" ? Kind::yarn : Kind::llama3;
  std::set<std::string_view> given;
  while (!rest.empty()) {
    const std::string_view part = next_part(rest);
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals);
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    bool known = false;
    visit_values(scaling, [&](std::string_view one, auto& target) {
      if (one != key) return;
      known = true;
      if (!read_value(value, target)) refuse(text, formatted("{} = '{}'", key, value));
    });
    if (!known) refuse(text, formatted("{} has no '{}'", name, key));
    if (!given.insert(key).second) refuse(text, formatted("{} is given twice", key));
  }
  for (const char* key : {"factor", "original_max_position_embeddings"}) {
    if (!given.contains(key)) refuse(text, formatted("{} is missing", key));
  }
  check_borders(text, scaling);
  if (scaling.kind == Kind::yarn && !given.contains("attention_factor"))
    scaling.attention_factor = yarn_attention_factor(scaling.factor);
  return scaling;
}

std::string rope_scaling_text(const RopeScaling& scaling) {
  if (scaling.kind == Kind::none) return "";
  std::string text = scaling.kind == Kind::yarn ? "yarn" : "llama3";
  visit_values(scaling, [&](std::string_view key, const auto& value) {
    text += formatted(",{}={}", key, value_text(value));
  });
  return text;
}

std::vector<double> rope_frequencies(std::int64_t head_dim, double theta,
                                     const RopeScaling& scaling) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    frequencies.push_back(
        1 / std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(head_dim)));
  }
  if (scaling.kind == Kind::yarn) scale_yarn(frequencies, head_dim, theta, scaling);
  if (scaling.kind == Kind::llama3) scale_llama3(frequencies, scaling);
  return frequencies;
}

}  // namespace trireme::model
