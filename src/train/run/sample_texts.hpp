#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"
#include "train/rl/whole_model.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_model.hpp"
#include "train/start/run_request.hpp"

namespace trireme::train {

/// A text that the current weights have generated.
struct SampleText {
  std::string prompt;
  std::string text;
};

/// Continues the prompts of metrics.samples with the current weights, so that users can read how the
/// model changes. A continuation has the most likely token at each position. It ends before the end
/// token or after metrics.sample_tokens tokens. Training does not depend on it.
///
/// The ranks divide the prompts. If the layout divides the model, each rank first copies the whole
/// model (WholeModel).
class SampleTexts {
 public:
  /// Reads the prompts and checks that they fit the model. Throws Error(data) for a file that cannot
  /// be read or a prompt without tokens, too long or with unknown ids, and Error(usage) for a task
  /// without texts. Without metrics.samples, there are no prompts.
  SampleTexts(const RunRequest& run, const RunData& data);

  [[nodiscard]] bool empty() const noexcept { return prompts_.empty(); }

  /// Generates the texts. Returns them in the order of the prompts on rank 0, and an empty list on
  /// other ranks. Collective over the world.
  [[nodiscard]] std::vector<SampleText> generate(const RunRequest& run, RunModel& model);

 private:
  struct Prompt {
    std::string text;
    std::vector<std::uint32_t> ids;
    std::vector<std::uint32_t> end_tokens;
    std::vector<std::string> stop;  // texts that end an answer of a chat
  };

  [[nodiscard]] std::vector<std::string> own_texts(const RunRequest& run, RunModel& model);

  std::unique_ptr<text::Tokenizer> tokenizer_;  // null without prompts
  std::vector<Prompt> prompts_;
  std::unique_ptr<WholeModel> whole_;  // null before the first use, or each rank has all weights
};

}  // namespace trireme::train
