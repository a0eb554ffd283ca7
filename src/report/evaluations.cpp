#include "report/evaluations.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

Evaluation read_one(const std::filesystem::path& file) {
  const std::string where = file.string();
  const Json json = parse_json(read_file(file, kMaxBytes), where);
  if (!json.is_object()) fail(ErrorKind::data, "{} is not a JSON object.", where);
  Json values = Json::object();
  for (const auto& [key, value] : json.items())
    if (value.is_number() || value.is_string()) values[key] = value;
  return {file.stem().string(), json_text(values)};
}

}  // namespace

std::vector<Evaluation> read_evaluations(const std::filesystem::path& run,
                                         std::vector<std::string>& notes) {
  std::vector<std::filesystem::path> files;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(run / "evaluations", code))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Evaluation> evaluations;
  for (const std::filesystem::path& file : files) {
    try {
      evaluations.push_back(read_one(file));
    } catch (const Error& error) {
      notes.push_back(formatted("An evaluation is unknown: {}", error.what()));
    }
  }
  return evaluations;
}

Json to_json(const std::vector<Evaluation>& evaluations) {
  Json json = Json::object();
  for (const Evaluation& one : evaluations) json[one.name] = parse_json(one.values, one.name);
  return json;
}

std::string card_text(const std::vector<Evaluation>& evaluations) {
  std::string text;
  for (const Evaluation& one : evaluations) {
    std::string values;
    const Json json = parse_json(one.values, one.name);
    for (const auto& [key, value] : json.items())
      values += formatted("{}{} {}", values.empty() ? "" : ", ", key,
                          value.is_string() ? value.get<std::string>() : value.dump());
    text += formatted("{}: {}\n", one.name, values);
  }
  return text;
}

}  // namespace trireme::report
