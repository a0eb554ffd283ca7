#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/files/json.hpp"

namespace trireme::report {

/// One evaluation of a run's model, from a file RUN/evaluations/NAME.json.
struct Evaluation {
  std::string name;    // file name without ".json"
  std::string values;  // JSON object of the numbers and texts at the top level of the file
};

/// Reads the evaluations of a run, by name. A file is one JSON object, such as `trireme eval --json`
/// and `trireme generate --json` print. Adds a note for each file that cannot be read. Returns
/// nothing if the directory is missing.
std::vector<Evaluation> read_evaluations(const std::filesystem::path& run,
                                         std::vector<std::string>& notes);

/// Returns {"core": {"core": 0.25}, ...}.
Json to_json(const std::vector<Evaluation>& evaluations);

/// Returns one line of text for each evaluation: "core: core 0.25".
std::string card_text(const std::vector<Evaluation>& evaluations);

}  // namespace trireme::report
