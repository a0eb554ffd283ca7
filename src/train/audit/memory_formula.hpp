#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "train/audit/update_facts.hpp"

namespace trireme {

/// Bytes of one rank in one update, counted or by formula.
struct RankMemory {
  std::int64_t weight_bytes = 0;         // that the model computes with
  std::int64_t main_bytes = 0;           // main weights, where they are a copy of their own
  std::int64_t grad_bytes = 0;           // main gradients, whole or this rank's parts
  std::int64_t optimizer_bytes = 0;      // its state
  std::int64_t gathered_peak_bytes = 0;  // units of weights and of gradients that are whole for now
  std::int64_t activation_peak_bytes = 0;  // what forward leaves for backward, at the most

  /// visit(name, value) for every field.
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("weight_bytes", self.weight_bytes);
    visit("main_bytes", self.main_bytes);
    visit("grad_bytes", self.grad_bytes);
    visit("optimizer_bytes", self.optimizer_bytes);
    visit("gathered_peak_bytes", self.gathered_peak_bytes);
    visit("activation_peak_bytes", self.activation_peak_bytes);
  }
};

/// activation_peak_bytes is -1 where plain operations keep what they like, where tokens vary, and where
/// routing decides what experts of other ranks' tokens keep; gathered_peak_bytes under ZeRO-2 and 3 with
/// stages or experts that lie in parts. For d = the data ranks that share one copy, in bytes a parameter with AdamW: bf16 18, 6 + 12/d,
/// 2 + 16/d, 18/d (ZeRO 0 to 3), fp32 16, 8 + 8/d, 4 + 12/d, 16/d; a frozen one has its weight alone
/// (2 or 4, under ZeRO-3 by d); what is whole for a time comes on top. Source: Rajbhandari et al., "ZeRO", SC 2020, section 5.
RankMemory memory_formula(const UpdateFacts& facts, int rank);

}  // namespace trireme
