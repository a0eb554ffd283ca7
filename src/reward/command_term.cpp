#include "reward/command_term.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "reward/line_program.hpp"

namespace trireme::reward {
namespace {

std::string line_of(const Sample& sample) {
  Json line = Json::object();
  line["text"] = sample.text;
  line["ids"] = std::vector<std::uint32_t>(sample.ids.begin(), sample.ids.end());
  line["turns"] = Json::array();
  for (const std::string_view turn : sample.turns) line["turns"].push_back(turn);
  if (sample.turns.empty()) line["turns"].push_back(sample.text);
  line["truncated"] = sample.truncated;
  line["record"] = sample.record == nullptr ? Json::object() : parse_json(*sample.record, "record");
  return json_text(line);
}

/// Parses the answer of the program; nullopt if it is not a finite number.
std::optional<double> reward_of(const std::string& answer) {
  try {
    Json value = parse_json(answer, "answer");
    if (value.is_object() && value.contains("reward")) value = value["reward"];
    if (!value.is_number()) return std::nullopt;
    const auto reward = value.get<double>();
    return std::isfinite(reward) ? std::optional(reward) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

class CommandTerm : public RewardTerm {
 public:
  explicit CommandTerm(const RewardOptions& options)
      : command_(options.command),
        program_({options.command, "rl.reward_command", options.timeout_s}) {}

  std::vector<double> score(std::span<const Sample> samples) override {
    std::vector<std::string> lines;
    lines.reserve(samples.size());
    for (const Sample& sample : samples) lines.push_back(line_of(sample));
    std::vector<double> rewards;
    for (const std::string& answer : program_.exchange(lines)) {
      const auto reward = reward_of(answer);
      if (!reward) {
        fail(ErrorKind::data,
             "rl.reward_command: the program `{}` answered '{}' for sample {}. Each answer must be "
             "a finite number or {{\"reward\": number}}.",
             command_, beginning_of(answer), rewards.size());
      }
      rewards.push_back(*reward);
    }
    return rewards;
  }

 private:
  std::string command_;
  LineProgram program_;
};

}  // namespace

std::unique_ptr<RewardTerm> make_command_term(const RewardOptions& options) {
  if (options.command.empty())
    fail(ErrorKind::usage,
         "rl.reward_command is empty, but rl.rewards names the term command. Give the program.");
  if (!(options.timeout_s > 0))
    fail(ErrorKind::usage, "rl.reward_timeout_s is {}. It must be greater than 0.",
         options.timeout_s);
  return std::make_unique<CommandTerm>(options);
}

}  // namespace trireme::reward
