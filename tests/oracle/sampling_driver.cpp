// usage: sampling_driver
// For each line {"logits", "prompt", "draws", "temperature", "top_k", "top_p", "min_p",
// "repetition_penalty", "logit_bias"} of standard input, prints how often each token was drawn, as
// one JSON list.
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/files/json.hpp"
#include "core/process/run_main.hpp"
#include "generate/sampling.hpp"

namespace {

using namespace trireme;

std::vector<std::int64_t> counts_of(const Json& line) {
  generate::SamplingConfig config;
  config.temperature = line.value("temperature", 1.0);
  config.top_k = line.value("top_k", std::int64_t{0});
  config.top_p = line.value("top_p", 1.0);
  config.min_p = line.value("min_p", 0.0);
  config.repetition_penalty = line.value("repetition_penalty", 1.0);
  config.seed = 20;
  if (line.contains("logit_bias")) {
    for (const auto& [id, bias] : line["logit_bias"].items())
      config.logit_bias[static_cast<std::uint32_t>(std::stoul(id))] = bias.get<double>();
  }
  auto logits = line["logits"].get<std::vector<double>>();
  const generate::TokenHistory history(line["prompt"].get<std::vector<std::uint32_t>>());
  history.apply(config, logits);
  std::vector<std::int64_t> counts(logits.size(), 0);
  for (std::uint64_t i = 0; i < line["draws"].get<std::uint64_t>(); ++i)
    ++counts[generate::sample_token(logits, config, i)];
  return counts;
}

}  // namespace

int main() {
  return run_main("sampling_driver", [] {
    for (std::string line; std::getline(std::cin, line);)
      std::cout << Json(counts_of(parse_json(line, "standard input"))).dump() << std::endl;
    return kExitDone;
  });
}
