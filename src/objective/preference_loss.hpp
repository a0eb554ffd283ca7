#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/problems.hpp"
#include "objective/sequence_scores.hpp"

namespace trireme {

/// What a sequence's log-probability is, from that of its targets.
enum class LogProbForm {
  sum,
  mean,         // over its targets; of none: 0
  padded_mean,  // sum / (seq_len - 1), whatever its length
};

inline constexpr std::array<std::string_view, 3> kLogProbForms{"sum", "mean",
                                                               "padded_mean"};  // by value

/// Of the margin m between the two sides of a pair.
///   sigmoid  -(1 - e) log sigmoid(beta m) - e log sigmoid(-beta m), e = label_smoothing
///   ipo      (m - 1 / (2 beta))^2
enum class PairLoss { sigmoid, ipo };

inline constexpr std::array<std::string_view, 2> kPairLosses{"sigmoid", "ipo"};  // by value

/// Values of dpo.score, the targets of a side whose log-probabilities count. `all`: every assistant
/// message, also those that both sides share (MiniMind). `answer`: those behind the tokens that both
/// sides begin with. TRL leaves out the turns that both sides share, but counts tokens that the last
/// answers begin with in common: they change a mean over the targets, but no margin of sums.
inline constexpr std::array<std::string_view, 2> kPairScores{"all", "answer"};

/// Keys of section [dpo] that say what the loss is.
struct PreferenceConfig {
  double beta = 0.1;
  std::string logprob = "sum";  // by default mean with loss = ipo, see Dpo::choose_defaults
  std::string score = "all";
  std::string loss = "sigmoid";
  double label_smoothing = 0;
  double sft_weight = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("beta", self.beta, "strength of the penalty for deviating from the reference model");
    visit("logprob", self.logprob,
          "log-probability of an answer: sum or mean over its targets, or padded_mean: sum / "
          "(train.seq_len - 1); default: sum, or mean if dpo.loss = ipo");
    visit(
        "score", self.score,
        "targets that count in dpo.logprob and dpo.sft_weight: all (every assistant message, even "
        "if both answers share it, as in MiniMind) or answer (only the tokens after the common "
        "prefix, as in TRL)");
    visit("loss", self.loss, "sigmoid (DPO) or ipo: (margin - 1 / (2 beta))^2");
    visit("label_smoothing", self.label_smoothing,
          "assumed share of pairs with swapped labels (sigmoid only)");
    visit("sft_weight", self.sft_weight,
          "factor of the SFT loss on the chosen answer (mean -log p of its targets)");
  }
};

/// Adds what is wrong with it.
void check(const PreferenceConfig& config, Problems& problems);

/// Of P pairs, in host memory, fp64; last dims of 2 are chosen, rejected.
struct PreferenceTerms {
  at::Tensor losses;   // [P]
  at::Tensor values;   // [P, 2]: log-probabilities in the form of the configuration
  at::Tensor rewards;  // [P, 2]: beta (value - the reference's)
  /// [2 P]: d loss / d(-log p) of each target of a sequence.
  at::Tensor row_weights;
};

/// Losses and gradients by sequence. `reference` as scores.sums; `seq_len` that rows are cut at.
/// Where both are equal, margins are exactly 0. Sources: Rafailov et al., "Direct preference
/// optimization", 2023, eq. 7; Azar et al., "A general theoretical paradigm to understand learning
/// from human preferences", 2023, eq. 17; Mitchell, "A note on DPO with noisy preferences", 2023.
PreferenceTerms preference_terms(const PreferenceConfig& config, const SequenceScores& scores,
                                 const at::Tensor& reference, std::int64_t seq_len);

}  // namespace trireme
