#include "train/cost/context_formula.hpp"

#include <algorithm>

#include "train/cost/formula_rows.hpp"
#include "train/cost/rank_widths.hpp"

namespace trireme {
namespace {

/// A rank's attention, whose tokens lie on all ranks of cp.
class ContextFormula {
 public:
  ContextFormula(const UpdateFacts& facts, const RankCoords& coords, const RankUnits& units,
                 const FormulaRows& cp)
      : facts_(facts),
        coords_(coords),
        cp_(cp),
        compute_(facts.compute_size()),
        wide_(std::max<std::int64_t>(compute_, 4)),
        backwards_(facts.micro_steps * units.layers),
        // Full and selective run attention again for backward.
        forwards_(facts.parallel.recompute == "none" ? backwards_ : 2 * backwards_),
        expert_backwards_(facts.micro_steps * units.expert_layers) {
    const RankWidths here = rank_widths(facts, coords);
    queries_ = here.query_heads;
    keys_ = here.copies_keys ? here.query_heads : here.key_heads;
  }

  void add() const {
    routers();
    if (facts_.parallel.cp_form == "ulysses") return ulysses();
    const std::int64_t elements = 2 * keys_ * place();  // and values, of this rank's tokens
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
  /// Elements of one head, of this rank's tokens.
  [[nodiscard]] std::int64_t place() const {
    return facts_.rows * (facts_.length / cp_.size()) * facts_.model.head_dim;
  }

  /// Each expert's assignments, and tokens, of every sequence or of all.
  void routers() const {
    const MoeConfig& moe = facts_.model.moe;
    if (!moe.has_aux_loss() || coords_.tp > 0) return;
    const std::int64_t sums = moe.router_aux_loss == "sequence" ? facts_.rows : 1;
    cp_.add("all_reduce", "assignments of experts", expert_backwards_,
            sums * (moe.num_experts + 1) * std::int64_t{sizeof(double)});
  }

  void ulysses() const {
    const auto deal = [&](const DimSplit& split, std::int64_t count, std::int64_t width) {
      std::vector<std::uint64_t> parts;
      for (int rank = 0; rank < cp_.size(); ++rank)
        parts.push_back(u64(split_range(count, split, cp_.size(), rank).count() * place() * width));
      return parts;
    };
    // Back: this rank's heads, each rank's places.
    const auto back = [&](const DimSplit& split, std::int64_t count, std::int64_t width) {
      const std::int64_t own = split_range(count, split, cp_.size(), coords_.cp).count();
      return std::vector<std::uint64_t>(static_cast<std::size_t>(cp_.size()),
                                        u64(own * place() * width));
    };
    const DimSplit query;
    const DimSplit key{.readers = queries_};
    cp_.add_all_to_all("context queries", forwards_, deal(query, queries_, compute_));
    cp_.add_all_to_all("context keys", forwards_, deal(key, keys_, compute_));
    cp_.add_all_to_all("context values", forwards_, deal(key, keys_, compute_));
    cp_.add_all_to_all("context output", forwards_, back(query, queries_, compute_));
    cp_.add_all_to_all("context output gradients", backwards_, deal(query, queries_, compute_));
    cp_.add_all_to_all("context query gradients", backwards_, back(query, queries_, compute_));
    cp_.add_all_to_all("context key gradients", backwards_, back(key, keys_, wide_));
    cp_.add_all_to_all("context value gradients", backwards_, back(key, keys_, wide_));
  }

  const UpdateFacts& facts_;
  const RankCoords& coords_;
  const FormulaRows& cp_;
  std::int64_t compute_;  // bytes of an element
  std::int64_t wide_;     // of sums: fp32, or fp64
  std::int64_t backwards_;
  std::int64_t forwards_;
  std::int64_t expert_backwards_;
  std::int64_t queries_ = 0;  // heads that attention of this rank of tp works on
  std::int64_t keys_ = 0;
};

}  // namespace

void add_context_rows(const UpdateFacts& facts, const RankCoords& coords, const RankUnits& units,
                      std::vector<CollectiveRow>& rows) {
  const auto size = static_cast<int>(facts.parallel.cp);
  if (size == 1) return;
  const FormulaRows cp{"cp", size, coords.cp, rows};
  ContextFormula(facts, coords, units, cp).add();
}

}  // namespace trireme
