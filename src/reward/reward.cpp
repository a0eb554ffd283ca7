#include "reward/reward.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "reward/command_term.hpp"
#include "reward/rules.hpp"

namespace trireme::reward {
namespace {

constexpr std::string_view kCommandTerm = "command";

constexpr std::array kNames{std::string_view("length"),
                            std::string_view("thinking"),
                            std::string_view("repetition"),
                            std::string_view("tags"),
                            std::string_view("tools"),
                            std::string_view("gt"),
                            kCommandTerm};

struct Rule {
  std::string_view name;
  double (*score)(const Sample& sample);
};

constexpr std::array kRules{
    Rule{"length", length_reward},         Rule{"thinking", thinking_reward},
    Rule{"repetition", repetition_reward}, Rule{"tags", tags_reward},
    Rule{"tools", tools_reward},           Rule{"gt", gt_reward},
};

class RuleTerm : public RewardTerm {
 public:
  explicit RuleTerm(const Rule& rule) : rule_(rule) {}

  std::vector<double> score(std::span<const Sample> samples) override {
    std::vector<double> rewards;
    rewards.reserve(samples.size());
    for (const Sample& sample : samples) rewards.push_back(rule_.score(sample));
    return rewards;
  }

 private:
  const Rule& rule_;
};

std::string known_names() {
  return cat(joined(kNames, ", "), ", ", kModelTerm);
}

bool is_known(std::string_view name) {
  return name == kModelTerm || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

WeightedTerm parse_term(std::string_view part) {
  const std::size_t equals = part.find('=');
  WeightedTerm term{std::string(part.substr(0, equals)), 1};
  if (!is_known(term.name))
    fail(ErrorKind::usage, "rl.rewards names the term '{}'. The known terms are {}.", term.name,
         known_names());
  if (equals == std::string_view::npos) return term;
  const auto weight = parse_number(part.substr(equals + 1));
  if (!weight)
    fail(ErrorKind::usage, "rl.rewards has the weight '{}' for {}. It must be a number: {}=0.5.",
         part.substr(equals + 1), term.name, term.name);
  term.weight = *weight;
  return term;
}

}  // namespace

std::vector<WeightedTerm> parse_rewards(std::string_view text) {
  if (text.empty())
    fail(ErrorKind::usage,
         "rl.rewards is empty. It must name terms with weights, for example length=1,gt=2. The "
         "known terms are {}.",
         known_names());
  std::vector<WeightedTerm> terms;
  for (const std::string& part : split(text, ',')) {
    WeightedTerm term = parse_term(part);
    const auto is_same = [&](const WeightedTerm& other) { return other.name == term.name; };
    if (std::any_of(terms.begin(), terms.end(), is_same))
      fail(ErrorKind::usage, "rl.rewards names the term {} twice. Give each term once.", term.name);
    terms.push_back(std::move(term));
  }
  return terms;
}

std::span<const std::string_view> reward_names() {
  return kNames;
}

std::unique_ptr<RewardTerm> make_term(std::string_view name, const RewardOptions& options) {
  if (name == kCommandTerm) return make_command_term(options);
  const auto* found = std::find_if(kRules.begin(), kRules.end(),
                                   [&](const Rule& rule) { return rule.name == name; });
  if (found == kRules.end())
    fail(ErrorKind::usage, "The reward term '{}' is unknown. The known terms are {}.", name,
         known_names());
  return std::make_unique<RuleTerm>(*found);
}

}  // namespace trireme::reward
