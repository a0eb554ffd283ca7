#include "train/cost/formula_rows.hpp"

#include <algorithm>
#include <numeric>

#include "comm/p2p/volume.hpp"
#include "train/cost/rank_widths.hpp"

namespace trireme::train {
namespace {

/// Collectives of a rank's attention when the sequence is sharded over cp.
class ContextFormula {
 public:
  ContextFormula(const UpdateFacts& facts, const parallel::RankCoords& coords,
                 const RankUnits& units, const FormulaRows& cp)
      : facts_(facts),
        coords_(coords),
        cp_(cp),
        compute_(facts.compute_size()),
        wide_(std::max<std::int64_t>(compute_, 4)),
        backwards_(facts.micro_steps * units.layers),
        // Full and selective checkpointing run attention again for backward.
        forwards_(facts.parallel.recompute == "none" ? backwards_ : 2 * backwards_),
        expert_backwards_(facts.micro_steps * units.expert_layers) {
    const RankWidths here = rank_widths(facts, coords);
    queries_ = here.query_heads;
    keys_ = here.copies_keys ? here.query_heads : here.key_heads;
  }

  void add() const {
    routers();
    if (facts_.parallel.cp_form == "ulysses") return ulysses();
    const std::int64_t elements =
        2 * keys_ * head_elements();  // keys and values of this rank's tokens
    if (facts_.parallel.cp_form == "all_gather") {
      cp_.add("all_gather", "context keys", forwards_ + backwards_, elements * compute_);
      cp_.add("reduce_scatter", "context key gradients", backwards_, cp_.size() * elements * wide_);
      return;
    }
    const std::int64_t transfers = cp_.size() - 1;
    cp_.add_sent("exchange", "context keys", transfers * (forwards_ + backwards_),
                 elements * compute_, u64(elements * compute_));
    cp_.add_sent("exchange", "context key gradients", transfers * backwards_, elements * wide_,
                 u64(elements * wide_));
  }

 private:
  /// Returns the elements of one head for this rank's tokens.
  [[nodiscard]] std::int64_t head_elements() const {
    return facts_.rows * (facts_.length / cp_.size()) * facts_.model.head_dim;
  }

  /// Adds the token counts of experts for the auxiliary loss, per sequence or over all.
  void routers() const {
    const model::MoeConfig& moe = facts_.model.moe;
    if (!moe.has_aux_loss() || coords_.tp > 0) return;
    const std::int64_t sums = moe.router_aux_loss == "sequence" ? facts_.rows : 1;
    cp_.add("all_reduce", "assignments of experts", expert_backwards_,
            sums * (moe.num_experts + 1) * std::int64_t{sizeof(double)});
  }

  void ulysses() const {
    const auto to_heads = [&](const parallel::DimSplit& split, std::int64_t count,
                              std::int64_t width) {
      std::vector<std::uint64_t> parts;
      for (int rank = 0; rank < cp_.size(); ++rank)
        parts.push_back(u64(parallel::split_range(count, split, cp_.size(), rank).count() *
                            head_elements() * width));
      return parts;
    };
    // The reverse direction sends this rank's heads for the positions of each rank.
    const auto to_tokens = [&](const parallel::DimSplit& split, std::int64_t count,
                               std::int64_t width) {
      const std::int64_t own = parallel::split_range(count, split, cp_.size(), coords_.cp).count();
      return std::vector<std::uint64_t>(static_cast<std::size_t>(cp_.size()),
                                        u64(own * head_elements() * width));
    };
    const parallel::DimSplit query;
    const parallel::DimSplit key{.readers = queries_};
    cp_.add_all_to_all("context queries", forwards_, to_heads(query, queries_, compute_));
    cp_.add_all_to_all("context keys", forwards_, to_heads(key, keys_, compute_));
    cp_.add_all_to_all("context values", forwards_, to_heads(key, keys_, compute_));
    cp_.add_all_to_all("context output", forwards_, to_tokens(query, queries_, compute_));
    cp_.add_all_to_all("context output gradients", backwards_, to_heads(query, queries_, compute_));
    cp_.add_all_to_all("context query gradients", backwards_, to_tokens(query, queries_, compute_));
    cp_.add_all_to_all("context key gradients", backwards_, to_tokens(key, keys_, wide_));
    cp_.add_all_to_all("context value gradients", backwards_, to_tokens(key, keys_, wide_));
  }

  const UpdateFacts& facts_;
  const parallel::RankCoords& coords_;
  const FormulaRows& cp_;
  std::int64_t compute_;  // bytes per element
  std::int64_t wide_;     // bytes per element of sums (fp32 or fp64)
  std::int64_t backwards_;
  std::int64_t forwards_;
  std::int64_t expert_backwards_;
  std::int64_t queries_ = 0;  // query heads of this rank of tp
  std::int64_t keys_ = 0;
};

}  // namespace

void FormulaRows::add(const char* operation, const char* purpose, std::int64_t times,
                      std::int64_t payload) const {
  if (size_ == 1 || times == 0) return;
  add_sent(operation, purpose, times, payload,
           comm::sent_bytes(operation, size_, rank_, u64(payload)));
}

void FormulaRows::add_sent(const char* operation, const char* purpose, std::int64_t times,
                           std::int64_t payload, std::uint64_t sent) const {
  if (size_ == 1 || times == 0) return;
  const auto same = std::find_if(rows_.begin(), rows_.end(), [&](const CollectiveRow& row) {
    return row.group == name_ && row.operation == operation && row.purpose == purpose;
  });
  CollectiveRow& row = same != rows_.end()
                           ? *same
                           : rows_.emplace_back(CollectiveRow{name_, size_, operation, purpose});
  row.count += u64(times);
  row.payload_bytes += u64(times * payload);
  row.moved_bytes = row.moved_bytes.value_or(0) + u64(times) * sent;
}

void FormulaRows::add_calls(const char* operation, const char* purpose, std::int64_t times) const {
  if (size_ == 1 || times == 0) return;
  CollectiveRow& row = rows_.emplace_back(CollectiveRow{name_, size_, operation, purpose});
  row.count = u64(times);
}

void FormulaRows::add_all_to_all(const char* purpose, std::int64_t times,
                                 const std::vector<std::uint64_t>& parts) const {
  const auto payload = std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
  add_sent("all_to_all", purpose, times, static_cast<std::int64_t>(payload),
           comm::sent_bytes(rank_, parts));
}

void add_context_rows(const UpdateFacts& facts, const parallel::RankCoords& coords,
                      const RankUnits& units, std::vector<CollectiveRow>& rows) {
  const auto size = static_cast<int>(facts.parallel.cp);
  if (size == 1) return;
  const FormulaRows cp{"cp", size, coords.cp, rows};
  ContextFormula(facts, coords, units, cp).add();
}

void add_fp8_rows(const UpdateFacts& facts, int rank, const RankUnits& units,
                  std::vector<CollectiveRow>& rows) {
  using model::Fp8Linear;
  using model::Fp8Mode;
  constexpr std::int64_t kAmax = sizeof(float);
  constexpr const char* kPurpose = "fp8 amax";
  if (facts.fp8 == Fp8Mode::delayed) {  // three operands of every matrix
    const auto linears = facts.model.num_layers * static_cast<std::int64_t>(model::kNumFp8Linears);
    FormulaRows("world", facts.ranks, rank, rows)
        .add("all_reduce", kPurpose, 1, 3 * linears * kAmax);
  }
  if (facts.fp8 == Fp8Mode::off || facts.fp8_history || facts.tokens_vary) return;
  const FormulaRows tp{"tp", static_cast<int>(facts.parallel.tp), coords_of(facts, rank).tp, rows};
  const auto linears = model::fp8_linears(facts.model);
  for (std::size_t i = 0; i < linears.size(); ++i) {
    if (!linears.at(i)) continue;
    const auto which = static_cast<Fp8Linear>(i);
    const bool of_mlp = which == Fp8Linear::gate_up || which == Fp8Linear::down;
    const bool row_parallel = which == Fp8Linear::output || which == Fp8Linear::down;
    const std::int64_t backwards =
        facts.micro_steps * (units.layers - (of_mlp ? units.expert_layers : 0));
    const std::int64_t forwards = backwards * (facts.parallel.recompute == "full" ? 2 : 1);
    if (facts.fp8 == Fp8Mode::rowwise) {  // rows of the product that contracts the split dimension
      tp.add("all_reduce", kPurpose, row_parallel ? forwards : backwards,
             (facts.tokens() + facts.model.hidden_size) * kAmax);
    } else {
      tp.add("all_reduce", kPurpose, forwards, 2 * kAmax);
      tp.add("all_reduce", kPurpose, backwards, kAmax);
    }
  }
}

}  // namespace trireme::train
