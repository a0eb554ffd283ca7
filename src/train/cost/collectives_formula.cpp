#include "train/cost/collectives_formula.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>

#include "core/exact_sum.hpp"
#include "model/residual_terms.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "parallel/tensor/tensor_group.hpp"
#include "train/cost/formula_rows.hpp"
#include "train/cost/matrix_cost.hpp"
#include "train/cost/rank_units.hpp"
#include "train/cost/rank_widths.hpp"
#include "train/cost/shared_elements.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kLossRows = 1024;  // tokens per chunk of the loss

/// The formulas of one rank, grouped by mesh axis.
class Formula {
 public:
  Formula(const UpdateFacts& facts, int rank)
      : facts_(facts),
        coords_(coords_of(facts, rank)),
        rank_(rank),
        units_(rank_units(facts, rank)),
        trained_(units_.trained()),
        compute_(facts.compute_size()),
        main_(facts.master_size()),
        wide_(std::max<std::int64_t>(compute_, 4)) {}

  std::vector<CollectiveRow> rows() {
    norm();
    router_load();
    gradients();
    averages();
    if (!facts_.tokens_vary || facts_.parallel.zero < 3) weights();
    tensor();
    if (!facts_.tokens_vary) add_context_rows(facts_, coords_, units_, rows_);
    add_fp8_rows(facts_, rank_, units_, rows_);
    add_matrix_rows(facts_, rank_, rows_);
    stages();
    experts();
    std::sort(rows_.begin(), rows_.end(), [](const CollectiveRow& a, const CollectiveRow& b) {
      return std::tie(a.group, a.operation, a.purpose) < std::tie(b.group, b.operation, b.purpose);
    });
    return std::move(rows_);
  }

 private:
  [[nodiscard]] FormulaRows data_group() {
    const auto size = static_cast<int>(facts_.data_ranks());
    return {"data", size, at_data(), rows_};
  }

  [[nodiscard]] FormulaRows shard_group() {
    const auto shards = static_cast<int>(facts_.shards());
    return {"shard", shards, at_data() % shards, rows_};
  }

  [[nodiscard]] FormulaRows replica_group() {
    const auto shards = static_cast<int>(facts_.shards());
    return {"replica", static_cast<int>(facts_.replicas()), at_data() / shards, rows_};
  }

  [[nodiscard]] FormulaRows expert_shard_group() {
    const auto shards = static_cast<int>(facts_.expert_shards());
    return {"expert_shard", shards, coords_.edp % shards, rows_};
  }

  [[nodiscard]] FormulaRows expert_replica_group() {
    const auto shards = static_cast<int>(facts_.expert_shards());
    const auto replicas = static_cast<int>(facts_.expert_ranks()) / shards;
    return {"expert_replica", replicas, coords_.edp / shards, rows_};
  }

  /// Adds token counts, and token rows to experts and back. Full activation checkpointing sends the
  /// rows again, but not the counts.
  void experts() {
    if (!facts_.has_expert_grid()) return;
    const FormulaRows ep{"ep", static_cast<int>(facts_.parallel.ep), coords_.ep, rows_};
    const std::int64_t times = facts_.micro_steps * units_.expert_layers;
    std::vector<std::uint64_t> counts;
    for (int rank = 0; rank < ep.size(); ++rank)
      counts.push_back(
          sizeof(std::int64_t) *
          u64(parallel::split_range(facts_.model.moe.num_experts, {}, ep.size(), rank).count()));
    ep.add_all_to_all("expert counts", times, counts);
    const std::int64_t forwards = times * (facts_.parallel.recompute == "full" ? 2 : 1);
    for (const char* purpose : {"expert inputs", "expert gates", "expert outputs"})
      ep.add_calls("all_to_all", purpose, forwards);
    for (const char* purpose :
         {"expert output gradients", "expert input gradients", "expert gate gradients"})
      ep.add_calls("all_to_all", purpose, times);
  }

  [[nodiscard]] int at_data() const {
    return coords_.cp + static_cast<int>(facts_.parallel.cp) * coords_.dp;
  }

  /// Adds the messages between stages and the reductions over pp.
  void stages() {
    const auto size = static_cast<int>(facts_.parallel.pp);
    if (size == 1) return;
    const FormulaRows pp{"pp", size, coords_.pp, rows_};
    pp.add("all_reduce", "loss", 1, 2 * sizeof(double));  // loss and seconds
    if (units_.replicated_embedding && !facts_.lora.on()) {
      const std::int64_t shard = units_.elements[*units_.replicated_embedding] / facts_.shards();
      FormulaRows("tied", 2, units_.has_head() ? 1 : 0, rows_)
          .add("all_reduce", "grads of tied table", 1, shard * main_);
    }
    if (facts_.tokens_vary) return;
    const std::int64_t bytes = facts_.stream_bytes();
    const pipeline::Placement placement = parallel::stage_placement(facts_.parallel);
    const auto elsewhere = [&](int stage) {
      return stage >= 0 && stage < placement.stages() &&
             placement.rank_of_stage[static_cast<std::size_t>(stage)] != coords_.pp;
    };
    for (const pipeline::StageAction& pass : actions_of(facts_, rank_)) {
      const bool forward = pass.kind == pipeline::ActionKind::forward;
      if (!forward && !pipeline::gives_input_grad(pass.kind)) continue;
      const char* purpose = forward ? "stage activations" : "stage gradients";
      const int to = forward ? pass.stage + 1 : pass.stage - 1;
      const int from = forward ? pass.stage - 1 : pass.stage + 1;
      if (elsewhere(to)) pp.add_sent("exchange", purpose, 1, bytes, u64(bytes));
      if (elsewhere(from)) pp.add_sent("exchange", purpose, 1, 0, 0);
    }
  }

  /// Adds the gradient norm: the words of an exact sum and the count of non-finite values.
  void norm() {
    constexpr std::int64_t kBytes = std::int64_t{8} * (ExactSum::kWords + 1);
    if (!facts_.has_local_steps()) {
      FormulaRows("world", facts_.ranks, rank_, rows_).add("all_reduce", "norm", 1, kBytes);
      return;
    }
    const FormulaRows tp{"tp", static_cast<int>(facts_.parallel.tp), coords_.tp, rows_};
    tp.add("all_reduce", "norm", 1, kBytes);
    data_group().add("all_reduce", "norm of data ranks", 1, kBytes);
  }

  /// Adds the token counts of all experts of the model.
  void router_load() {
    const model::MoeConfig& moe = facts_.model.moe;
    if (!moe.on() || facts_.has_local_steps()) return;
    const std::int64_t counts = facts_.model.num_layers * moe.num_experts;
    FormulaRows("world", facts_.ranks, rank_, rows_)
        .add("all_reduce", "load of experts", 1, counts * std::int64_t{sizeof(double)});
  }

  /// Returns the number of backward passes after which gradients are reduced.
  [[nodiscard]] std::int64_t passes() const {
    return facts_.grads_leave_each_pass() ? facts_.micro_steps : 1;
  }

  void gradients() {
    const std::int64_t parts = facts_.shards();
    if (facts_.parallel.reproducible) {
      const FormulaRows data = data_group();
      for (const std::int64_t unit : trained_) {
        if (unit == 0) continue;  // all its parameters are in the unit of small parameters
        const std::int64_t share = unit * main_ / data.size();
        data.add_all_to_all(
            "grads in order", passes(),
            std::vector<std::uint64_t>(static_cast<std::size_t>(data.size()), u64(share)));
        replica_group().add("all_gather", "grads of copies", 1, share);
      }
      return;
    }
    const std::vector<std::int64_t> experts = units_.trainable_experts();
    if (!facts_.has_parts()) {
      const auto bytes_of = [this](const std::vector<std::int64_t>& units) {
        return std::accumulate(units.begin(), units.end(), std::int64_t{0}) * main_;
      };
      buckets(bytes_of(trained_), std::max(facts_.node_replicas, 1),
              [this](std::int64_t bytes) { bucket(bytes); });
      buckets(bytes_of(experts), 1, [this](std::int64_t bytes) {
        expert_replica_group().add("all_reduce", "grads bucket", 1, bytes);
      });
      return;
    }
    for (const std::int64_t unit : trained_) {
      if (unit == 0) continue;
      shard_group().add("reduce_scatter", "grads", passes(), unit * main_);
      replica_group().add("all_reduce", "grads of copies", 1, unit / parts * main_);
    }
    for (const std::int64_t unit : experts) {
      expert_shard_group().add("reduce_scatter", "grads", passes(), unit * main_);
      expert_replica_group().add("all_reduce", "grads of copies", 1,
                                 unit / facts_.expert_shards() * main_);
    }
  }

  /// Splits `all` bytes of gradients into buckets. A bucket is a multiple of 64 elements for each
  /// of `grain` ranks.
  template <class Add>
  void buckets(std::int64_t all, std::int64_t grain, Add add) {
    const std::int64_t bytes = parallel::bucket_bytes(facts_.parallel, facts_.data_ranks());
    if (all == 0) return;
    if (bytes == 0) return add(all);
    grain *= 64;
    std::int64_t left = all;
    for (std::int64_t size = std::min<std::int64_t>(bytes, 1 << 20); left > 0; size = bytes) {
      const std::int64_t whole = std::max(size / main_ / grain * grain, grain) * main_;
      add(std::min(left, whole));
      left -= std::min(left, whole);
    }
  }

  void bucket(std::int64_t bytes) {
    const int here = facts_.node_replicas;
    if (here == 0) {
      const FormulaRows cp{"cp", static_cast<int>(facts_.parallel.cp), coords_.cp, rows_};
      const FormulaRows group = facts_.has_local_steps() ? cp : replica_group();
      group.add("all_reduce", "grads bucket", 1, bytes);
      return;
    }
    const FormulaRows node{"node", here, at_data() % here, rows_};
    const int nodes = static_cast<int>(facts_.replicas()) / here;
    const FormulaRows across{"across", nodes, at_data() / here, rows_};
    node.add("reduce_scatter", "grads in node", 1, bytes);
    across.add("all_reduce", "grads across nodes", 1, bytes / here);
    node.add("all_gather", "grads in node", 1, bytes / here);
  }

  /// Adds the averages of local steps: weights, unit by unit, and every tensor of optimizer state.
  void averages() {
    if (!facts_.averages) return;
    const auto size = static_cast<int>(facts_.data_ranks() / facts_.parallel.cp);
    const FormulaRows dp{"dp", size, coords_.dp, rows_};
    const std::int64_t all = std::accumulate(trained_.begin(), trained_.end(), std::int64_t{0});
    for (const std::int64_t unit : trained_) dp.add("all_reduce", "average", 1, unit * main_);
    dp.add("all_reduce", "average", facts_.slots(), all * main_);
  }

  void weights() {
    const GatherPlan plan = plan_gathers(facts_, units_, actions_of(facts_, rank_));
    const bool walked = facts_.weights_sharded();
    for (std::size_t unit = 0; unit < units_.elements.size(); ++unit) {
      if (units_.elements[unit] == 0) continue;
      const std::int64_t after_update = unit < units_.first_trained ? 0 : 1;
      shard_group().add("all_gather", "weights", walked ? plan.gathers[unit] : after_update,
                        units_.elements[unit] / facts_.shards() * compute_);
    }
    const std::int64_t after_update = units_.trainable_experts().empty() ? 0 : 1;
    for (std::size_t i = 0; i < units_.experts.size(); ++i)
      expert_shard_group().add("all_gather", "weights",
                               walked ? plan.expert_gathers[i] : after_update,
                               units_.experts[i] / facts_.expert_shards() * compute_);
  }

  /// Returns how often blocks run forward in one optimizer step, including recomputation.
  [[nodiscard]] std::int64_t block_forwards() const {
    const std::int64_t runs = facts_.parallel.recompute == "full" ? 2 : 1;
    return facts_.micro_steps * units_.layers * runs;
  }

  [[nodiscard]] std::int64_t block_backwards() const { return facts_.micro_steps * units_.layers; }

  void tensor() {
    const parallel::ParallelConfig& parallel = facts_.parallel;
    const auto size = static_cast<int>(parallel.tp);
    const FormulaRows tp{"tp", size, coords_.tp, rows_};
    if (size == 1) return;
    if (!facts_.tokens_vary) activations(tp);
    shared_gradients(tp);
  }

  /// Adds the collectives over tp for the activations of blocks, embedding, head and loss.
  void activations(const FormulaRows& tp) {
    const parallel::ParallelConfig& parallel = facts_.parallel;
    const int size = tp.size();
    const std::int64_t tokens = facts_.tokens();
    const std::int64_t token = facts_.model.hidden_size * compute_;
    // Each block communicates twice, in chunks; the embedding and the head once each.
    const std::int64_t in_blocks = 2 * (block_forwards() + block_backwards());
    const std::int64_t lookups = units_.has_embedding() ? (facts_.model.smear ? 2 : 1) : 0;
    const std::int64_t ends = lookups + (units_.has_head() ? 1 : 0);
    const std::int64_t outside = ends * facts_.micro_steps;
    if (facts_.model.qk_norm_whole) {
      const std::int64_t again = parallel.recompute == "selective" ? block_backwards() : 0;
      tp.add("all_reduce", "qk norm", block_forwards() + again + block_backwards(),
             2 * tokens * wide_);
    }
    if (!parallel.sequence_parallel) {
      tp.add("all_reduce", "activations", outside, tokens * token);
      for (const parallel::IndexRange& piece : parallel::token_chunks(tokens, parallel.tp_chunks))
        tp.add("all_reduce", "activations", in_blocks, piece.count() * token);
    } else {
      // Selective checkpointing gathers the inputs of matrices again for backward.
      const std::int64_t again =
          parallel.recompute == "selective" ? inputs_wanted() * block_backwards() : 0;
      // A frozen embedding has no backward pass.
      const std::int64_t below = facts_.lora.on() ? lookups * facts_.micro_steps : 0;
      tp.add("reduce_scatter", "activations", outside, tokens * token);
      tp.add("all_gather", "activations", outside + again - below, tokens * token / size);
      const std::int64_t own = facts_.length / parallel.cp / size;  // tokens of a row on this rank
      for (const parallel::IndexRange& piece : parallel::token_chunks(own, parallel.tp_chunks)) {
        const std::int64_t bytes = facts_.rows * piece.count() * token;
        tp.add("reduce_scatter", "activations", in_blocks, bytes * size);
        tp.add("all_gather", "activations", in_blocks, bytes);
      }
    }
    value_gates(tp);
    for (std::int64_t first = 0; units_.has_head() && first < tokens; first += kLossRows) {
      const std::int64_t rows = std::min(kLossRows, tokens - first);
      tp.add("all_reduce", "loss maxima", facts_.micro_steps, rows * wide_);
      tp.add("all_reduce", "loss sums", facts_.micro_steps, 2 * rows * wide_);
    }
  }

  /// Adds the collectives of the gates of value embeddings, which read a few elements of each token.
  void value_gates(const FormulaRows& tp) {
    const parallel::ParallelConfig& parallel = facts_.parallel;
    const std::int64_t layers = value_layers();
    if (layers == 0) return;
    const std::int64_t backwards = facts_.micro_steps * layers;
    const std::int64_t forwards = backwards * (parallel.recompute == "full" ? 2 : 1);
    const std::int64_t token = model::value_gate_inputs(facts_.model) * compute_;
    if (!parallel.sequence_parallel) {
      for (const auto& piece : parallel::token_chunks(facts_.tokens(), parallel.tp_chunks))
        tp.add("all_reduce", "activations", backwards, piece.count() * token);
      return;
    }
    const std::int64_t own = facts_.length / parallel.cp / tp.size();
    for (const parallel::IndexRange& piece : parallel::token_chunks(own, parallel.tp_chunks)) {
      const std::int64_t bytes = facts_.rows * piece.count() * token;
      tp.add("all_gather", "activations", forwards, bytes);
      tp.add("reduce_scatter", "activations", backwards, bytes * tp.size());
    }
  }

  /// Returns the number of layers of this rank with a value embedding.
  [[nodiscard]] std::int64_t value_layers() const {
    std::int64_t layers = 0;
    for (const StageUnits& stage : units_.stages)
      for (std::int64_t i = stage.layers.first_layer; i < stage.layers.end_layer; ++i)
        layers += facts_.model.has_value_embedding(i) ? 1 : 0;
    return layers;
  }

  /// Returns how many of the two inputs of a block's matrices the backward pass reads.
  [[nodiscard]] std::int64_t inputs_wanted() const {
    if (!facts_.lora.on()) return 2;
    const auto adapters = adapter_elements(facts_, coords_.tp);
    return (adapters[0].terms > 0 ? 1 : 0) + (adapters[2].terms > 0 ? 1 : 0);
  }

  /// Adds the gradients of parameters that are replicated over tp, where each rank has a partial
  /// sum.
  void shared_gradients(const FormulaRows& tp) const {
    // A unit in one part collects its gradients until the update, even if experts are sharded.
    const std::int64_t sums = facts_.parallel.reproducible || facts_.shards() > 1 ? passes() : 1;
    if (facts_.lora.on()) {
      std::int64_t shared = 0;
      for (const AdapterElements& group : adapter_elements(facts_, coords_.tp))
        shared += group.shared;
      tp.add("all_reduce", "shared grads", sums * units_.layers, shared * main_);
      return;
    }
    const SharedElements shared = shared_elements(facts_, units_, coords_);
    for (const auto& [elements, count] : shared.units)
      if (elements > 0) tp.add("all_reduce", "shared grads", sums * count, elements * main_);
  }

  const UpdateFacts& facts_;
  parallel::RankCoords coords_;
  int rank_;
  RankUnits units_;
  std::vector<std::int64_t> trained_;
  std::int64_t compute_;  // bytes per element
  std::int64_t main_;
  std::int64_t wide_;  // bytes per element of sums (fp32 or fp64)
  std::vector<CollectiveRow> rows_;
};

}  // namespace

std::vector<CollectiveRow> collectives_formula(const UpdateFacts& facts, int rank) {
  return Formula(facts, rank).rows();
}

}  // namespace trireme::train
