#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/order/rl_prompts.hpp"
#include "data/order/stream.hpp"

namespace trireme::train {

struct RlPrompt {
  std::int64_t index = 0;  // global index in the run
  std::vector<std::uint32_t> ids;
  std::string record;  // JSON object
};

/// Reads the prompts of a run in the order of its data stream.
class RlPromptReader {
 public:
  struct Limits {
    std::int64_t max_new_tokens = 0;
    std::int64_t max_tokens = 0;             // limits a prompt with its answers
    std::string_view key = "train.seq_len";  // the configuration key of max_tokens
  };

  /// `stream` must outlive this object.
  explicit RlPromptReader(const data::SampleStream& stream);

  /// Throws Error(data) if the prompt and its longest answer have more than max_tokens tokens.
  [[nodiscard]] RlPrompt at(std::int64_t index, const Limits& limits) const;

 private:
  const data::SampleStream& stream_;
  std::map<const data::TokenSet*, data::RlPrompts> sets_;
};

/// Throws Error(data) if the prompt and its longest answer have more than seq_len tokens.
void check_length(const data::RlPrompts::Prompt& prompt, const data::TokenSet& set,
                  const RlPromptReader::Limits& limits);

}  // namespace trireme::train
