#include "model/rope_scaling.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::model {
namespace {

using Kind = RopeScaling::Kind;

struct KindName {
  Kind kind;
  std::string_view name;
};

constexpr std::array<KindName, 6> kKinds{{{Kind::none, "default"},
                                          {Kind::yarn, "yarn"},
                                          {Kind::llama3, "llama3"},
                                          {Kind::linear, "linear"},
                                          {Kind::dynamic, "dynamic"},
                                          {Kind::longrope, "longrope"}}};

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  fail(
      ErrorKind::usage,
      "model.rope_scaling = '{}': {}; it must be empty, or as yarn,factor=16,original_max_position_embeddings=2048[,beta_fast=32,beta_slow=1,attention_factor=1,truncate=true], or as llama3,factor=8,original_max_position_embeddings=8192[,low_freq_factor=1,high_freq_factor=4], or as linear,factor=4, or as dynamic,factor=4,original_max_position_embeddings=4096, or as longrope,factor=32,original_max_position_embeddings=4096,short_factor=1:1.1,long_factor=1:4.5[,attention_factor=1]",
      text, why);
}

template <class Scaling, class Visit>
void visit_values(Scaling& scaling, Visit&& visit) {
  visit("factor", scaling.factor);
  if (scaling.kind != Kind::linear) visit("original_max_position_embeddings", scaling.original_max);
  if (scaling.kind == Kind::longrope) {
    visit("attention_factor", scaling.attention_factor);
    visit("short_factor", scaling.short_factor);
    visit("long_factor", scaling.long_factor);
  }
  if (scaling.kind == Kind::yarn) {
    visit("beta_fast", scaling.beta_fast);
    visit("beta_slow", scaling.beta_slow);
    visit("attention_factor", scaling.attention_factor);
    visit("truncate", scaling.truncate);
  }
  if (scaling.kind == Kind::llama3) {
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

/// Reads numbers with ':' between them.
bool read_value(std::string_view text, std::vector<double>& values) {
  values.clear();
  while (true) {
    const std::size_t end = std::min(text.find(':'), text.size());
    values.push_back(0);
    if (!read_value(text.substr(0, end), values.back())) return false;
    if (end == text.size()) return true;
    text.remove_prefix(end + 1);
  }
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

std::string value_text(const std::vector<double>& values) {
  return joined(values, ":", [](double value) { return number_text(value); });
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

void scale_longrope(std::vector<double>& frequencies, const RopeScaling& scaling,
                    std::int64_t max_seq_len) {
  const std::vector<double>& factors =
      max_seq_len > scaling.original_max ? scaling.long_factor : scaling.short_factor;
  TRIREME_ASSERT(factors.size() == frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

}  // namespace

std::string_view rope_kind_name(Kind kind) {
  return std::ranges::find(kKinds, kind, &KindName::kind)->name;
}

std::optional<Kind> find_rope_kind(std::string_view name) {
  const auto* const found = std::ranges::find(kKinds, name, &KindName::name);
  if (found == kKinds.end()) return std::nullopt;
  return found->kind;
}

void check_fits(const RopeScaling& scaling, std::int64_t rotated_dim, std::int64_t max_seq_len) {
  if (scaling.kind == Kind::dynamic && max_seq_len > scaling.original_max)
    fail(ErrorKind::usage,
         "model.max_seq_len = {} with dynamic RoPE scaling must be at most "
         "original_max_position_embeddings = {}: longer texts would have frequencies of their own",
         max_seq_len, scaling.original_max);
  if (scaling.kind != Kind::longrope) return;
  for (const auto& [name, factors] : {std::pair{"short_factor", &scaling.short_factor},
                                      std::pair{"long_factor", &scaling.long_factor}}) {
    if (std::ssize(*factors) != rotated_dim / 2)
      fail(ErrorKind::usage,
           "model.rope_scaling: {} has {} numbers, must be {}: one for each rotated pair of a head",
           name, factors->size(), rotated_dim / 2);
  }
}

double longrope_attention_factor(double factor, std::int64_t original_max) {
  if (factor <= 1) return 1.0;
  return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original_max)));
}

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeScaling parse_rope_scaling(std::string_view text) {
  RopeScaling scaling;
  if (text.empty()) return scaling;
  std::string_view rest = text;
  const std::string_view name = next_part(rest);
  const std::optional<Kind> kind = find_rope_kind(name);
  if (!kind || *kind == Kind::none) refuse(text, formatted("'{}' is not known", name));
  scaling.kind = *kind;
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
  visit_values(scaling, [&](std::string_view key, const auto&) {
    const bool needed = key == "factor" || key == "original_max_position_embeddings" ||
                        key == "short_factor" || key == "long_factor";
    if (needed && !given.contains(key)) refuse(text, formatted("{} is missing", key));
  });
  check_borders(text, scaling);
  if (given.contains("attention_factor")) return scaling;
  if (scaling.kind == Kind::yarn) scaling.attention_factor = yarn_attention_factor(scaling.factor);
  if (scaling.kind == Kind::longrope)
    scaling.attention_factor = longrope_attention_factor(scaling.factor, scaling.original_max);
  return scaling;
}

std::string rope_scaling_text(const RopeScaling& scaling) {
  if (scaling.kind == Kind::none) return "";
  std::string text(rope_kind_name(scaling.kind));
  visit_values(scaling, [&](std::string_view key, const auto& value) {
    text += formatted(",{}={}", key, value_text(value));
  });
  return text;
}

std::vector<double> rope_frequencies(std::int64_t head_dim, double theta,
                                     const RopeScaling& scaling, std::int64_t max_seq_len) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    frequencies.push_back(
        1 / std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(head_dim)));
  }
  if (scaling.kind == Kind::yarn) scale_yarn(frequencies, head_dim, theta, scaling);
  if (scaling.kind == Kind::llama3) scale_llama3(frequencies, scaling);
  if (scaling.kind == Kind::longrope) scale_longrope(frequencies, scaling, max_seq_len);
  if (scaling.kind == Kind::linear)
    for (double& frequency : frequencies) frequency /= scaling.factor;
  return frequencies;
}

}  // namespace trireme::model
