#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/files/json_lines.hpp"
#include "core/number.hpp"
#include "train/rl/rollout.hpp"

namespace trireme::train {
namespace {

std::vector<std::uint32_t> read_ids(const Json& line, const char* key, std::int64_t vocab_size,
                                    const std::string& where) {
  if (!line.contains(key) || !line[key].is_array())
    fail(ErrorKind::data, "{}: {} is not a list of token ids.", where, key);
  if (line[key].empty())
    fail(ErrorKind::data, "{}: {} is empty. It must have at least one token id.", where, key);
  std::vector<std::uint32_t> ids;
  for (const Json& id : line[key]) {
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab_size)) {
      fail(ErrorKind::data, "{}: {} contains {}. Ids must be integers from 0 to {}.", where, key,
           id.dump(), vocab_size - 1);
    }
    ids.push_back(id.get<std::uint32_t>());
  }
  return ids;
}

/// Returns numbers, one per token of the answer.
std::vector<double> read_numbers(const Json& line, const char* key, std::size_t tokens,
                                 const std::string& where) {
  if (!line.contains(key) || !line[key].is_array() || line[key].size() != tokens) {
    fail(ErrorKind::data, "{}: {} must be a list of {} numbers, one for each id of completion_ids.",
         where, key, tokens);
  }
  std::vector<double> numbers;
  for (const Json& number : line[key]) {
    if (!number.is_number())
      fail(ErrorKind::data, "{}: {} contains {}, which is not a number.", where, key,
           number.dump());
    numbers.push_back(number.get<double>());
  }
  return numbers;
}

std::vector<std::string> read_texts(const Json& line, const char* key, const std::string& where) {
  std::vector<std::string> texts;
  for (const Json& text : line[key]) {
    if (!text.is_string()) fail(ErrorKind::data, "{}: {} is not a list of texts.", where, key);
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

/// Reads the values that this run computed before it published the answer.
void read_computed(const Json& line, const std::string& where, Rollout& rollout) {
  const auto numbers = [&](const char* key, std::vector<double>& values) {
    if (line.contains(key) && line[key].is_array() && !line[key].empty())
      values = read_numbers(line, key, rollout.ids.size(), where);
  };
  numbers("old_logprobs", rollout.old_logprobs);
  numbers("ref_logprobs", rollout.ref_logprobs);
  numbers("train_logprobs", rollout.current_logprobs);
  if (!line.contains("rewards") || !line["rewards"].is_object())
    fail(ErrorKind::data, "{}: rewards is not a JSON object.", where);
  numbers("values", rollout.values);
  rollout.advantage = json_get<double>(line, "advantage", where);
  for (const auto& [name, value] : line["rewards"].items())
    rollout.rewards[name] = json_get<double>(line["rewards"], name, where);
}

Rollout parse_rollout(const Json& line, std::int64_t vocab_size, const std::string& where) {
  if (!line.is_object()) fail(ErrorKind::data, "{}: not a JSON object.", where);
  Rollout rollout;
  rollout.prompt = read_ids(line, "prompt_ids", vocab_size, where);
  rollout.ids = read_ids(line, "completion_ids", vocab_size, where);
  for (const double value : read_numbers(line, "mask", rollout.ids.size(), where)) {
    if (value != 0 && value != 1)
      fail(ErrorKind::data, "{}: mask contains {}. Its values must be 0 or 1.", where, value);
    rollout.mask.push_back(value == 1);
  }
  rollout.rollout_logprobs = read_numbers(line, "rollout_logprobs", rollout.ids.size(), where);
  rollout.reward = json_get<double>(line, "reward", where);
  if (line.contains("text")) rollout.text = json_get<std::string>(line, "text", where);
  if (line.contains("turns")) rollout.turns = read_texts(line, "turns", where);
  if (line.contains("finish")) {
    const auto finish = json_get<std::string>(line, "finish", where);
    rollout.truncated = finish == "length";
    rollout.unfinished = finish == "turns";
  }
  if (line.contains("weights_version"))
    rollout.weights_version = json_get<std::int64_t>(line, "weights_version", where);
  return rollout;
}

/// Throws Error(data) if a trained token has a probability above 1. The program's own values may be
/// above 0 by rounding.
void check_logprobs(const Rollout& rollout, const std::string& where) {
  constexpr double kRounding = 1e-6;
  for (std::size_t i = 0; i < rollout.ids.size(); ++i)
    if (rollout.mask[i] && rollout.rollout_logprobs[i] > kRounding)
      fail(ErrorKind::data, "{}: rollout_logprobs contains {}. A log-probability is at most 0.",
           where, number_text(rollout.rollout_logprobs[i]));
}

void check_row(const Rollout& rollout, std::int64_t max_tokens, const std::string& where) {
  const auto tokens = std::ssize(rollout.prompt) + std::ssize(rollout.ids);
  if (tokens <= max_tokens) return;
  fail(ErrorKind::data,
       "{}: prompt_ids and completion_ids have {} tokens, but train.seq_len is {}. Raise "
       "train.seq_len, or remove the group of this prompt.",
       where, tokens, max_tokens);
}

}  // namespace

std::string rollout_line(const Rollout& rollout) {
  Json line;
  line["prompt_index"] = rollout.prompt_index;
  line["sample"] = rollout.sample;
  line["prompt_ids"] = rollout.prompt;
  line["completion_ids"] = rollout.ids;
  Json& mask = line["mask"] = Json::array();
  for (const bool trained : rollout.mask) mask.push_back(trained ? 1 : 0);
  line["rollout_logprobs"] = rollout.rollout_logprobs;
  line["old_logprobs"] = rollout.old_logprobs;
  line["ref_logprobs"] = rollout.ref_logprobs;
  if (!rollout.current_logprobs.empty()) line["train_logprobs"] = rollout.current_logprobs;
  line["values"] = rollout.values;
  line["text"] = rollout.text;
  line["turns"] = rollout.turns.empty() ? std::vector{rollout.text} : rollout.turns;
  line["finish"] = rollout.truncated ? "length" : rollout.unfinished ? "turns" : "stop";
  line["rewards"] = rollout.rewards;
  line["reward"] = rollout.reward;
  if (rollout.raw_reward) line["raw_reward"] = *rollout.raw_reward;
  line["advantage"] = rollout.advantage;
  if (!rollout.advantages.empty()) line["advantages"] = rollout.advantages;
  line["weights_version"] = rollout.weights_version;
  return json_line(line);
}

std::vector<Rollout> rollouts_of_lines(std::string_view lines, std::int64_t vocab_size,
                                       const std::string& where) {
  std::vector<Rollout> rollouts;
  for_each_line(lines, where, [&](std::string_view text, const std::string& line) {
    const Json json = parse_json(text, line);
    Rollout one = parse_rollout(json, vocab_size, line);
    read_computed(json, line, one);
    one.prompt_index = json_get<std::int64_t>(json, "prompt_index", line);
    one.sample = json_get<std::int64_t>(json, "sample", line);
    rollouts.push_back(std::move(one));
  });
  return rollouts;
}

std::string rollout_file_name(std::int64_t step) {
  constexpr std::size_t kDigits = 9;
  std::string digits = std::to_string(step);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return cat("step-", digits, ".jsonl");
}

void remove_old_rollouts(const std::filesystem::path& directory, std::int64_t step,
                         std::int64_t kept, const std::set<std::int64_t>& needed) {
  std::set<std::string> needed_names;
  for (const std::int64_t one : needed) needed_names.insert(rollout_file_name(one));
  std::vector<std::string> names;
  const std::string newest = rollout_file_name(step);
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.size() == newest.size() && name < newest)
      names.push_back(name);
  }
  std::sort(names.begin(), names.end(), std::greater<>());
  for (std::size_t i = static_cast<std::size_t>(kept) - 1; i < names.size(); ++i) {
    if (!needed_names.contains(names[i])) std::filesystem::remove(directory / names[i]);
  }
}

std::vector<Rollout> read_replay(const std::filesystem::path& place, const ReplayPart& part) {
  const bool is_directory = std::filesystem::is_directory(place);
  const auto path = is_directory ? place / rollout_file_name(part.step) : place;
  const std::int64_t skipped = is_directory ? 0 : part.rollout * part.answers;
  std::vector<Rollout> rollouts;
  std::int64_t number = 0;
  for_each_line(
      read_file(path), path.string(), [&](std::string_view text, const std::string& where) {
        const std::int64_t answer = number++ - skipped;
        if (answer < part.first || answer >= part.first + part.count) return;
        const Json line = parse_json(text, where);
        Rollout one = parse_rollout(line, part.vocab_size, where);
        check_row(one, part.max_tokens, where);
        if (part.is_saved) {
          read_computed(line, where, one);
        } else {
          check_logprobs(one, where);
          // This run subtracts its own KL penalty.
          if (line.contains("raw_reward")) one.reward = json_get<double>(line, "raw_reward", where);
        }
        one.sample = answer % part.group;
        one.prompt_index = part.rollout * (part.answers / part.group) + answer / part.group;
        if (one.sample > 0 && one.prompt != rollouts.back().prompt) {
          fail(ErrorKind::data,
               "{}: prompt_ids differ from the line before. Each prompt needs {} "
               "consecutive lines (rl.group).",
               where, part.group);
        }
        rollouts.push_back(std::move(one));
      });
  if (number < skipped + part.answers || (is_directory && number != part.answers)) {
    fail(ErrorKind::data,
         "{} has {} lines, but step {} needs {} lines after the first {} "
         "(train.global_batch * rl.group).",
         path.string(), number, part.step, part.answers, skipped);
  }
  return rollouts;
}

}  // namespace trireme::train
