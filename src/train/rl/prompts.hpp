#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/order/rl_prompts.hpp"
#include "data/order/samples.hpp"
#include "data/order/stream.hpp"
#include "train/rl/rl_config.hpp"

namespace trireme::train {

struct RlPrompt {
  std::int64_t index = 0;  // global index in the run
  std::vector<std::uint32_t> ids;
  std::string record;  // JSON object
};

/// Reads the prompts of a run in the order of its data stream.
class RlPromptReader {
 public:
  /// `stream` must outlive this object.
  explicit RlPromptReader(const data::SampleStream& stream);

  [[nodiscard]] RlPrompt at(std::int64_t index) const;

 private:
  const data::SampleStream& stream_;
  std::map<const data::TokenSet*, data::RlPrompts> sets_;
};

/// Throws Error(data) if a prompt of the samples and its longest answer have more than `seq_len`
/// tokens, or with tools more than rl.max_total_tokens.
void check_prompt_lengths(const RlConfig& config, std::int64_t seq_len,
                          const data::SampleSet& samples);

}  // namespace trireme::train
