#include "report/sample_file.hpp"

#include <simdjson.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace trireme::report {

std::vector<Sample> read_samples(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  simdjson::dom::parser parser;
  std::map<std::pair<std::int64_t, std::int64_t>, Sample> samples;  // by number and step
  for (std::string line; std::getline(in, line);) {
    simdjson::dom::object object;
    Sample sample;
    std::string_view prompt;
    std::string_view text;
    if (parser.parse(line).get(object) != simdjson::SUCCESS ||
        object["sample_step"].get(sample.step) != simdjson::SUCCESS ||
        object["sample"].get(sample.number) != simdjson::SUCCESS ||
        object["prompt"].get(prompt) != simdjson::SUCCESS ||
        object["text"].get(text) != simdjson::SUCCESS)
      continue;
    sample.prompt = prompt;
    sample.text = text;
    samples[{sample.number, sample.step}] = std::move(sample);
  }
  std::vector<Sample> list;
  for (auto& [key, sample] : samples) list.push_back(std::move(sample));
  return list;
}

Json samples_json(const std::vector<Sample>& samples) {
  Json json = Json::array();
  for (const Sample& one : samples)
    json.push_back(
        {{"step", one.step}, {"sample", one.number}, {"prompt", one.prompt}, {"text", one.text}});
  return json;
}

}  // namespace trireme::report
