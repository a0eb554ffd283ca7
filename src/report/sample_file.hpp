#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/files/json.hpp"

namespace trireme::report {

/// A text that a validation has generated (metrics.samples).
struct Sample {
  std::int64_t step = 0;
  std::int64_t number = 0;  // number of the prompt, from 0
  std::string prompt;
  std::string text;
};

/// Reads samples.jsonl. Returns the samples by prompt, then by step. If an attempt repeated a step,
/// the last line counts. Skips damaged lines. Returns an empty list if the file does not exist.
std::vector<Sample> read_samples(const std::filesystem::path& file);

/// Returns [{"step", "sample", "prompt", "text"}, ...].
Json samples_json(const std::vector<Sample>& samples);

}  // namespace trireme::report
