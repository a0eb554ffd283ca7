// usage: reward_driver
// For each line {"turns", "unfinished", "record"} of standard input, prints the reward of every
// rule as one JSON object.
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/files/json.hpp"
#include "core/process/run_main.hpp"
#include "reward/reward.hpp"

namespace {

using namespace trireme;

Json rewards_of(const Json& line) {
  const auto turns = line["turns"].get<std::vector<std::string>>();
  const std::vector<std::string_view> views(turns.begin(), turns.end());
  const std::string record = line["record"].dump();
  reward::Sample sample;
  sample.text = views.back();
  sample.turns = views;
  sample.record = &record;
  sample.unfinished = line["unfinished"].get<bool>();
  Json rewards = Json::object();
  for (const std::string_view name : reward::reward_names())
    if (name != "command")
      rewards[std::string(name)] = reward::make_term(name, {})->score({&sample, 1})[0];
  return rewards;
}

}  // namespace

int main() {
  return run_main("reward_driver", [] {
    for (std::string line; std::getline(std::cin, line);)
      std::cout << rewards_of(parse_json(line, "standard input")).dump() << '\n';
    return kExitDone;
  });
}
