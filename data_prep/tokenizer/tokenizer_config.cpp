#include <array>

#include "core/error.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"

namespace trireme {
namespace {

constexpr std::array kPatterns{SplitStep::gpt2,   SplitStep::llama3, SplitStep::qwen2,
                               SplitStep::qwen35, SplitStep::cl100k, SplitStep::o200k,
                               SplitStep::tekken};

}  // namespace

std::vector<std::string> split_pattern_names() {
  std::vector<std::string> names;
  for (const SplitStep step : kPatterns) names.emplace_back(name_of(step));
  return names;
}

SplitStep split_pattern_named(const std::string& name) {
  for (const SplitStep step : kPatterns) {
    if (name == name_of(step)) return step;
  }
  fail(ErrorKind::internal, "no split pattern {}", name);
}

}  // namespace trireme
