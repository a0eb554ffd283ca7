#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch.hpp"
#include "train/rl/rl_config.hpp"

/// Generated answers and their values: rewards, advantages, files and training rows. No LibTorch.
namespace trireme::train {

/// One answer. Vectors over its tokens have the length of `ids`.
struct Rollout {
  std::int64_t prompt_index = 0;  // global index of the prompt
  std::int64_t sample = 0;        // index in the group
  std::vector<std::uint32_t> prompt;
  // Generated tokens, up to and including the first end token. With tools: the tokens of all
  // answers, with the results of tools and the header of the next answer between two answers.
  std::vector<std::uint32_t> ids;
  std::vector<bool> mask;  // true for tokens that are trained
  std::vector<double> rollout_logprobs;
  std::vector<double> old_logprobs;        // denominator of the ratio
  std::vector<double> ref_logprobs;        // empty: no reference
  std::vector<double> current_logprobs{};  // computed before the update; empty: not needed
  std::vector<double> values{};            // critic values; empty: there is no critic
  std::vector<double> advantages{};        // per token; empty: all tokens have `advantage`
  std::vector<double> returns{};           // targets of the critic, per token
  std::string text;                        // last answer
  std::vector<std::string> turns;          // all answers
  std::size_t answer_begin = 0;            // the last answer in `ids`, without its end token
  std::size_t answer_end = 0;
  std::string record{};                   // JSON object of the prompt, for the rewards
  bool truncated = false;                 // reached a limit of tokens
  bool unfinished = false;                // the last answer calls a tool that gave no result
  std::map<std::string, double> rewards;  // before weighting, by term
  double reward = 0;                      // weighted sum, with the KL penalty if rl.kl = reward
  std::optional<double> raw_reward{};     // without the KL penalty; nullopt: there is none
  double advantage = 0;                   // with `advantages`: their mean over the trained tokens
  std::int64_t weights_version = 0;  // completed steps of the weights that generated the answer

  [[nodiscard]] std::int64_t num_trained() const;

  /// Returns the ids of the last answer without its end token.
  [[nodiscard]] std::span<const std::uint32_t> last_answer() const {
    return std::span(ids).subspan(answer_begin, answer_end - answer_begin);
  }
};

/// Returns one line of RUN/rollouts/step-NNNNNNNNN.jsonl, with its line end.
std::string rollout_line(const Rollout& rollout);

/// Reads lines of rollout_line() with all values that a run computes. `where` begins the message of
/// an error. Throws Error(data) for an invalid line.
std::vector<Rollout> rollouts_of_lines(std::string_view lines, std::int64_t vocab_size,
                                       const std::string& where);

std::string rollout_file_name(std::int64_t step);

/// Removes the files of all steps before `step` but the newest `kept` - 1 and those of the steps in
/// `needed`. Later files stay.
void remove_old_rollouts(const std::filesystem::path& directory, std::int64_t step,
                         std::int64_t kept, const std::set<std::int64_t>& needed);

/// A part of a rollout that a rank reads from rl.replay, or from the file of this run.
struct ReplayPart {
  std::int64_t step = 0;     // number of the first update with these answers, from 1
  std::int64_t rollout = 0;  // number of earlier rollouts
  bool is_saved = false;     // true: the file of this run, which also has computed values
  std::int64_t answers = 0;  // number of answers of all ranks
  std::int64_t first = 0;    // first answer of this rank
  std::int64_t count = 0;    // answers of this rank
  std::int64_t group = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_tokens = 0;  // train.seq_len: maximum for a prompt with its answer
};

/// Reads answers from a file or a directory of files. Throws Error(data) for a file that is absent,
/// too short or invalid; the message names the file and the line.
std::vector<Rollout> read_replay(const std::filesystem::path& place, const ReplayPart& part);

struct AdvantageTotals {
  std::int64_t zero_std_groups = 0;  // groups with equal rewards
  double std_sum = 0;                // sum of the standard deviations of the groups
};

/// Subtracts beta * (sum of k3 over the trained tokens) from each reward (rl.kl = reward).
void penalize_rewards(const RlConfig& config, std::span<Rollout> rollouts);

/// Sets the advantages of whole groups. `all_rewards` holds the rewards of the whole update.
/// `baseline` is that of spo; without one, spo keeps the advantages. ppo sets them elsewhere
/// (token_advantages.hpp).
AdvantageTotals set_advantages(const RlConfig& config, std::span<const double> all_rewards,
                               std::optional<double> baseline, std::span<Rollout> rollouts);

/// Sets old_logprobs and checks rl.max_gap. Throws Error(numeric) if a difference is larger.
void set_old_logprobs(const RlConfig& config, std::span<Rollout> rollouts);

/// Numbers of an update over all ranks.
struct UpdateTotals {
  std::int64_t answers = 0;
  std::int64_t trained_tokens = 0;  // targets without the answers that rl.truncated = mask excludes
  std::int64_t targets = 0;         // tokens with mask = true in all answers
  std::int64_t batches = 0;
};

/// Makes one micro-batch with a row of `row_tokens` tokens for each answer. The losses of all
/// micro-batches of an update add up to (loss of the update * totals.targets), because the step
/// divides by totals.targets.
data::Batch make_policy_batch(const RlConfig& config, std::span<const Rollout> rollouts,
                              const UpdateTotals& totals, std::int64_t row_tokens,
                              std::int64_t pad_id);

}  // namespace trireme::train
