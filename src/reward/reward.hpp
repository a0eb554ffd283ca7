#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Rewards of generated answers. A run combines named terms with weights.
namespace trireme::reward {

/// One generated answer to score.
struct Sample {
  // last answer with the text of special tokens, without the end token
  std::string_view text = {};
  std::span<const std::uint32_t> ids = {};  // ids of the answer
  bool truncated = false;                   // reached the token limit before an end token
  const std::string* record = nullptr;      // fields of the record as a JSON object; null: "{}"
  // all answers of an agent, with `text` as the last one; empty: `text` is the only answer
  std::span<const std::string_view> turns = {};
  bool unfinished = false;  // the last answer calls a tool, and the limit of turns is reached
};

/// A source of rewards. All calls come from one thread.
class RewardTerm {
 public:
  RewardTerm() = default;
  RewardTerm(const RewardTerm&) = delete;
  RewardTerm& operator=(const RewardTerm&) = delete;
  virtual ~RewardTerm() = default;

  /// Returns one finite number per sample. Throws Error(data) if a reward cannot be computed, and
  /// Error(resource) if a program does not answer in time.
  virtual std::vector<double> score(std::span<const Sample> samples) = 0;
};

struct WeightedTerm {
  std::string name;
  double weight = 1;
};

/// The name of the term that the caller creates from a reward model.
inline constexpr std::string_view kModelTerm = "model";

/// Parses "length=1,repetition=1,model=1". Throws Error(usage) for an unknown name, a name that
/// occurs twice, a weight that is not a number, and an empty list.
std::vector<WeightedTerm> parse_rewards(std::string_view text);

/// Returns the names of all terms that make_term creates.
std::span<const std::string_view> reward_names();

struct RewardOptions {
  std::string command;    // program of the term "command", run by sh -c
  double timeout_s = 60;  // maximum time for one answer of the program
};

/// Creates the term with that name. Throws Error(usage) if the name is unknown, or if the term
/// "command" has no program.
std::unique_ptr<RewardTerm> make_term(std::string_view name, const RewardOptions& options);

}  // namespace trireme::reward
