#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/problems.hpp"
#include "objective/sequence_scores.hpp"

namespace trireme::objective {

/// Derives the log-probability of a sequence from those of its targets.
enum class LogProbForm {
  sum,
  mean,         // over its targets; 0 if there are none
  padded_mean,  // sum / (seq_len - 1), for any length
};

inline constexpr std::array<std::string_view, 3> kLogProbForms{"sum", "mean",
                                                               "padded_mean"};  // by value

/// The loss of a preference pair. m is the difference between the values of the chosen and the
/// rejected answer, and a and b are these values. A value is the log-probability, minus that of the
/// reference if the loss has one.
///   sigmoid  -(1 - e) log sigmoid(beta m) - e log sigmoid(-beta m), e = label_smoothing
///   ipo      (m - 1 / (2 beta))^2
///   orpo     -beta log sigmoid(log odds(a) - log odds(b)), odds(a) = exp(a) / (1 - exp(a)); 0 if a
///            side has no target
///   simpo    sigmoid with beta m - gamma in the place of beta m
enum class PairLoss { sigmoid, ipo, orpo, simpo };

// The order is that of PairLoss.
inline constexpr std::array<std::string_view, 4> kPairLosses{"sigmoid", "ipo", "orpo", "simpo"};

/// Returns true if the loss compares the model with a reference. orpo and simpo have none.
bool has_reference(std::string_view loss);

/// Values of dpo.score: the targets that count. `all`: every assistant message,
/// even if both answers share it (MiniMind). `answer`: only tokens after the common prefix of both
/// answers. TRL omits shared messages but counts common first tokens of the last answers; these
/// change a mean over the targets, but not the margin of sums.
inline constexpr std::array<std::string_view, 2> kPairScores{"all", "answer"};

/// Keys of section [dpo] that define the loss.
struct PreferenceConfig {
  double beta = 0.1;
  std::string logprob = "sum";
  std::string score = "all";
  std::string loss = "sigmoid";
  double gamma = 1;
  double label_smoothing = 0;
  double sft_weight = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(
        "beta", self.beta,
        "strength of the penalty for deviating from the reference model; orpo: weight of the odds "
        "ratio; simpo: factor of the margin; default: 0.1, or 2 if dpo.loss = simpo");
    visit("logprob", self.logprob,
          "log-probability of an answer: sum or mean over its targets, or padded_mean: sum / "
          "(train.seq_len - 1); default: sum, or mean if dpo.loss is ipo, orpo or simpo");
    visit(
        "score", self.score,
        "targets that count in dpo.logprob and dpo.sft_weight: all (every assistant message, even "
        "if both answers share it, as in MiniMind) or answer (only the tokens after the common "
        "prefix, as in TRL)");
    visit("loss", self.loss,
          "sigmoid (DPO), ipo: (margin - 1 / (2 beta))^2, or a loss without a reference: orpo or "
          "simpo");
    visit("gamma", self.gamma, "margin that simpo subtracts from beta * margin (simpo only)");
    visit("label_smoothing", self.label_smoothing,
          "assumed share of pairs with swapped labels (sigmoid and simpo only)");
    visit(
        "sft_weight", self.sft_weight,
        "factor of the SFT loss on the chosen answer (mean -log p of its targets); default: 0, or "
        "1 if dpo.loss = orpo");
  }
};

void check(const PreferenceConfig& config, Problems& problems);

/// The loss terms of P preference pairs, on the host, fp64. Dimensions of 2 are chosen, rejected.
struct PreferenceTerms {
  at::Tensor losses;   // loss of each pair
  at::Tensor values;   // [P, 2]: log-probabilities in the configured form
  at::Tensor rewards;  // [P, 2]: beta * (value - reference value)
  /// [2 P]: d loss / d(-log p) for each target of a sequence.
  at::Tensor row_weights;
};

/// Computes losses and gradients per sequence. `reference` is like scores.sums, and 0 for a loss
/// without a reference; `seq_len` is the
/// length at which rows are truncated. If scores and reference are equal, all margins are exactly
/// 0. Sources: Rafailov et al., "Direct preference optimization", 2023, eq. 7; Azar et al., "A
/// general theoretical paradigm to understand learning from human preferences", 2023, eq. 17;
/// Mitchell, "A note on DPO with noisy preferences", 2023; Hong et al., "ORPO: monolithic preference
/// optimization without reference model", 2024, eq. 6 and 7; Meng et al., "SimPO: simple preference
/// optimization with a reference-free reward", 2024, eq. 6.
PreferenceTerms preference_terms(const PreferenceConfig& config, const SequenceScores& scores,
                                 const at::Tensor& reference, std::int64_t seq_len);

}  // namespace trireme::objective
