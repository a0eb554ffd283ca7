#include "train/planner/action_costs.hpp"

#include <algorithm>

#include "model/residual_terms.hpp"

namespace trireme::planner {
namespace {

double at_16_bits(const Cluster& cluster, at::ScalarType compute) {
  const double element = static_cast<double>(c10::elementSize(compute));
  const double peak = cluster.device.peak_flops;
  // tf32 has half of the 16-bit peak, fp64 on tensor cores 1/16; the peak of a CPU is for fp32.
  if (cluster.device.shares_node) return element > 4 ? peak / 2 : peak;
  return element > 4 ? peak / 16 : element > 2 ? peak / 2 : peak;
}

/// Returns the widths of a rank with the largest shard of every matrix.
train::RankWidths largest_widths(const train::UpdateFacts& facts) {
  const parallel::ParallelConfig& parallel = facts.parallel;
  return train::rank_widths(facts,
                            {.tp = static_cast<int>(parallel.tp) - 1,
                             .etp = static_cast<int>(parallel::expert_tensor_ranks(parallel)) - 1,
                             .ep = static_cast<int>(parallel.ep) - 1});
}

/// Returns the reciprocal of a rank's part of the node.
double ranks_that_share(const Cluster& cluster) {
  const DeviceKind& device = cluster.device;
  if (!device.shares_node) return 1;
  const double most =
      device.rank_cores == 0 ? 1 : static_cast<double>(device.cores) / device.rank_cores;
  return std::max(most, static_cast<double>(cluster.per_node));
}

}  // namespace

Seconds& Seconds::add(const Seconds& other, double times) {
  compute += times * other.compute;
  tp += times * other.tp;
  cp += times * other.cp;
  ep += times * other.ep;
  dp += times * other.dp;
  return *this;
}

ActionCost& ActionCost::add(const ActionCost& other, double times) {
  forward.add(other.forward, times);
  input_grad.add(other.input_grad, times);
  weight_grad.add(other.weight_grad, times);
  return *this;
}

ActionCosts::ActionCosts(const train::UpdateFacts& facts, const Cluster& cluster,
                         const TimeConstants& constants)
    : facts_(facts),
      cluster_(cluster),
      constants_(constants),
      network_(cluster.device.links),
      flops_per_s_(constants.efficiency * at_16_bits(cluster, facts.dtypes.compute) /
                   ranks_that_share(cluster)),
      element_(static_cast<double>(facts.compute_size())),
      tp_(static_cast<double>(facts.parallel.tp)),
      etp_(static_cast<double>(parallel::expert_tensor_ranks(facts.parallel))),
      ep_(static_cast<double>(facts.parallel.ep)),
      tokens_(static_cast<double>(facts.tokens())),
      here_(largest_widths(facts)) {
  dense_ = block_cost(/*experts=*/false);
  if (facts_.model.moe.on()) experts_ = block_cost(/*experts=*/true);
  const double width = static_cast<double>(facts_.model.hidden_size);
  embedding_.forward.compute = memory_s(3 * tokens_ * width * element_);
  embedding_.weight_grad.compute = memory_s(3 * tokens_ * width * element_);
  head_ = head_cost();
}

double ActionCosts::memory_s(double bytes) const {
  return bytes * ranks_that_share(cluster_) / cluster_.device.memory_bytes_per_s;
}

double ActionCosts::product_s(const Product& p) const {
  const double flops = 2 * p.rows * p.inner * p.columns;
  const double bytes = element_ * (p.rows * p.inner + p.inner * p.columns + p.rows * p.columns);
  return std::max(flops / flops_per_s_, memory_s(bytes));
}

std::vector<ActionCosts::Product> ActionCosts::attention_products() const {
  const model::ModelConfig& m = facts_.model;
  const auto width = static_cast<double>(m.hidden_size);
  const auto queries = static_cast<double>(here_.queries);
  const auto keys = static_cast<double>(here_.keys);
  return {{tokens_, width, queries + 2 * keys}, {tokens_, queries, width}};
}

std::vector<ActionCosts::Product> ActionCosts::mlp_products(bool experts) const {
  const model::ModelConfig& m = facts_.model;
  const auto width = static_cast<double>(m.hidden_size);
  if (!experts) {
    const auto inner = static_cast<double>(here_.mlp);
    const auto inputs = static_cast<double>(m.mlp_inputs());
    return {{tokens_, width, inputs * inner}, {tokens_, inner, width}};
  }
  std::vector<Product> all{{tokens_, width, static_cast<double>(m.moe.num_experts)}};
  if (m.moe.num_shared_experts > 0) {
    const auto inner = static_cast<double>(here_.shared);
    all.insert(all.end(), {{tokens_, width, 2 * inner}, {tokens_, inner, width}});
  }
  return all;
}

double ActionCosts::expert_elements() const {
  return static_cast<double>(here_.experts * 3 * facts_.model.hidden_size * here_.expert);
}

/// Assumes that tokens are spread evenly over experts. If etp < tp, each rank sends its own tokens.
double ActionCosts::expert_products_s() const {
  const model::MoeConfig& moe = facts_.model.moe;
  const auto width = static_cast<double>(facts_.model.hidden_size);
  const auto inner = static_cast<double>(here_.expert);
  const double rows = tokens_ * static_cast<double>(moe.num_experts_per_tok) * etp_ / tp_;
  const double bytes = element_ * (expert_elements() + rows * (2 * width + 3 * inner));
  return std::max(2 * rows * 3 * width * inner / flops_per_s_, memory_s(bytes));
}

/// Without sequence parallelism, norms and residuals are replicated over tp: 10 of 34 bytes
/// (Korthikanti et al., "Reducing Activation Recomputation", 2022, section 4).
double ActionCosts::elementwise_s() const {
  const double cut = facts_.parallel.sequence_parallel ? 1 / tp_ : (10 + 24 / tp_) / 34;
  return memory_s(constants_.elementwise_bytes * (element_ / 2) * tokens_ *
                  static_cast<double>(facts_.model.hidden_size) * cut) +
         stream_options_s();
}

/// Each residual term reads two hidden states and writes one; a value embedding reads a row of its
/// table and copies queries, keys and values; a value residual copies them and reads and writes
/// three more tensors of values. The mean of the layers.
double ActionCosts::stream_options_s() const {
  const model::ModelConfig& m = facts_.model;
  std::int64_t terms = 0;
  for (std::int64_t layer = 0; layer <= m.num_layers; ++layer)
    terms += std::ssize(model::residual_terms(m, layer));
  const auto mean = [&](std::int64_t count) {
    return static_cast<double>(count) / static_cast<double>(m.num_layers);
  };
  const double rows = facts_.parallel.sequence_parallel ? tokens_ / tp_ : tokens_;
  const auto of_values = static_cast<double>(2 * here_.queries + 6 * here_.keys);
  const auto of_mixed_values = static_cast<double>(2 * here_.queries + 10 * here_.keys);
  return memory_s(element_ *
                  (3 * rows * static_cast<double>(m.hidden_size) * mean(terms) +
                   tokens_ * of_values * mean(m.num_value_embeddings()) +
                   tokens_ * of_mixed_values * mean(m.value_residual ? m.num_layers - 1 : 0)));
}

double ActionCosts::attention_s() const {
  const double keys = static_cast<double>(facts_.model.keys_of_last_query(facts_.length)) /
                      static_cast<double>(facts_.model.num_layers);  // mean of the layers
  const double products = 4 * tokens_ * keys * static_cast<double>(here_.queries) / flops_per_s_;
  if (facts_.model.attention_softcap == 0) return products;
  // The plain path reads and writes the scores of all pairs of tokens in 5 operations, in 32 bits.
  const double scores = tokens_ * static_cast<double>(facts_.length * here_.query_heads);
  return products + memory_s(5 * 2 * 4 * scores);
}

double ActionCosts::tp_exchange_s() const {
  if (tp_ == 1) return 0;
  const GroupShape group = group_shape(static_cast<int>(tp_), 1, cluster_.per_node);
  const double bytes = tokens_ * static_cast<double>(facts_.model.hidden_size) * element_;
  const double once = facts_.parallel.sequence_parallel ? 2 * network_.gather_s(bytes, group)
                                                        : network_.all_reduce_s(bytes, group);
  const bool hides = facts_.parallel.tp_chunks > 1 && !cluster_.device.shares_node;
  const double of_norm =  // two sums per token in 32 bits
      facts_.model.qk_norm_whole ? network_.all_reduce_s(2 * 4 * tokens_, group) : 0;
  return 2 * once * constants_.network_factor * (hides ? 1 - constants_.tp_hidden : 1) +
         of_norm * constants_.network_factor;
}

/// Returns the exposed time to exchange keys and values, `messages` times their bytes; a ring
/// overlaps with attention.
double ActionCosts::cp_exposed_s(double attention_s, double messages) const {
  const parallel::ParallelConfig& parallel = facts_.parallel;
  if (parallel.cp == 1) return 0;
  const auto cp = static_cast<double>(parallel.cp);
  const double keys = 2 * static_cast<double>(here_.keys);
  const GroupShape group =
      group_shape(static_cast<int>(parallel.cp), static_cast<int>(tp_), cluster_.per_node);
  if (parallel.cp_form == "ulysses") {
    const double queries = 2 * static_cast<double>(here_.queries);
    return messages * constants_.network_factor *
           network_.all_to_all_s(tokens_ * (queries + keys) * element_, group);
  }
  const double bytes = messages * tokens_ * keys * element_;
  if (parallel.cp_form == "all_gather")
    return constants_.network_factor * network_.gather_s(cp * bytes, group);
  const double step = constants_.network_factor * network_.send_s(bytes, group.nodes() > 1);
  const double hidden = cluster_.device.shares_node ? 0 : attention_s / cp;
  return (cp - 1) * std::max(0.0, step - hidden);
}

/// Returns the time to merge the partial results of a ring, in 32 bits.
double ActionCosts::ring_merge_s() const {
  const parallel::ParallelConfig& parallel = facts_.parallel;
  if (parallel.cp == 1 || parallel.cp_form != "ring") return 0;
  const auto queries = static_cast<double>(here_.queries);
  constexpr double kBytes = 12;  // two operands read, one written
  return memory_s(static_cast<double>(parallel.cp - 1) * kBytes * tokens_ * queries);
}

double ActionCosts::ep_exchange_s() const {
  if (ep_ == 1) return 0;
  const auto k = static_cast<double>(facts_.model.moe.num_experts_per_tok);
  const double cut = facts_.parallel.sequence_parallel ? tp_ : tp_ / etp_;
  const double bytes = tokens_ * k * static_cast<double>(facts_.model.hidden_size) * element_ / cut;
  const GroupShape group =
      group_shape(static_cast<int>(ep_), static_cast<int>(etp_), cluster_.per_node);
  return 2 * constants_.network_factor * network_.all_to_all_s(bytes, group);
}

ActionCost ActionCosts::block_cost(bool experts) const {
  double products = 0;
  for (const Product& product : attention_products()) products += product_s(product);
  for (const Product& product : mlp_products(experts)) products += product_s(product);
  if (experts) products += expert_products_s();
  const double attention = attention_s();
  const double elementwise = elementwise_s();
  ActionCost cost;
  cost.forward.compute = products + attention + elementwise / 3;
  cost.input_grad.compute = products + 2 * attention + elementwise * 2 / 3;
  cost.weight_grad.compute = products;
  cost.forward.tp = cost.input_grad.tp = tp_exchange_s();
  cost.forward.cp = cp_exposed_s(attention, 1) + ring_merge_s();
  cost.input_grad.cp = cp_exposed_s(2 * attention, 2) + 2 * ring_merge_s();
  if (experts) cost.forward.ep = cost.input_grad.ep = ep_exchange_s();
  if (facts_.parallel.recompute == "full") cost.input_grad.add(cost.forward);
  if (facts_.parallel.recompute == "selective") cost.input_grad.compute += elementwise / 3;
  add_sharded_weights(experts, cost);
  return cost;
}

/// Adds the exposed communication of sharded weights. ZeRO-3 gathers the weights of the next block
/// while a block computes, and reduces gradients while the next block computes; ZeRO-2 only reduces
/// gradients.
void ActionCosts::add_sharded_weights(bool experts, ActionCost& cost) const {
  if (facts_.shards() == 1 || facts_.parallel.zero < 2) return;
  const train::Elements shard = weights(experts);
  const auto both = [&](auto&& seconds) {
    return seconds(shard.dense, data_group()) +
           (shard.experts > 0 ? seconds(shard.experts, expert_group()) : 0);
  };
  const bool hides = !cluster_.device.shares_node;
  const auto exposed = [&](double exchange, double beside) {
    return hides ? std::max(0.0, exchange - beside) : exchange;
  };
  double behind = both([&](double n, GroupShape g) { return reduce_s(n, g); });
  if (facts_.parallel.zero == 3) {
    const double gather = both([&](double n, GroupShape g) { return gather_weights_s(n, g); });
    cost.forward.dp = exposed(gather, cost.forward.compute);
    behind += gather;
  }
  cost.input_grad.dp = exposed(behind, cost.input_grad.compute + cost.weight_grad.compute);
}

ActionCost ActionCosts::head_cost() const {
  const model::ModelConfig& m = facts_.model;
  const auto vocab = static_cast<double>(here_.vocab);
  const double product = product_s({tokens_, static_cast<double>(m.hidden_size), vocab});
  ActionCost cost;
  cost.forward.compute = 3 * product + memory_s(6 * element_ * tokens_ * vocab);
  cost.forward.tp = tp_exchange_s() / 2;  // one exchange each for the input and its gradient
  return cost;
}

train::Elements ActionCosts::weights(bool experts) const {
  train::Elements part;
  for (const Product& product : attention_products()) part.dense += product.inner * product.columns;
  for (const Product& product : mlp_products(experts))
    part.dense += product.inner * product.columns;
  if (experts) part.experts = expert_elements();
  return part;
}

double ActionCosts::table_weights() const {
  return static_cast<double>(here_.vocab * facts_.model.hidden_size);
}

double ActionCosts::transfer_s() const {
  const auto distance = static_cast<std::int64_t>(facts_.ranks) / facts_.parallel.pp;
  return constants_.network_factor *
         network_.send_s(static_cast<double>(facts_.stream_bytes()), distance >= cluster_.per_node);
}

GroupShape ActionCosts::data_group() const {
  return group_shape(static_cast<int>(facts_.data_ranks()), static_cast<int>(tp_),
                     cluster_.per_node);
}

GroupShape ActionCosts::context_group() const {
  return group_shape(static_cast<int>(facts_.parallel.cp), static_cast<int>(tp_),
                     cluster_.per_node);
}

GroupShape ActionCosts::expert_group() const {
  const auto all = static_cast<double>(facts_.data_ranks()) * tp_;
  return group_shape(std::max(1, static_cast<int>(all / (etp_ * ep_))),
                     static_cast<int>(etp_ * ep_), cluster_.per_node);
}

/// Neighbouring ranks shard one replica; the gradients of each shard are then summed over the
/// replicas.
double ActionCosts::reduce_s(double elements, GroupShape group) const {
  const double bytes = elements * static_cast<double>(facts_.master_size());
  const auto shards = static_cast<int>(facts_.shards());
  const double factor = constants_.network_factor;
  if (shards == 1) return factor * network_.all_reduce_s(bytes, group);
  if (shards >= group.ranks) return factor * network_.gather_s(bytes, group);
  const GroupShape inner{shards, std::min(shards, group.per_node)};
  const int copies = group.ranks / shards;
  const GroupShape outer{copies, std::max(1, group.per_node / shards)};
  return factor * (network_.gather_s(bytes, inner) + network_.all_reduce_s(bytes / shards, outer));
}

double ActionCosts::gather_weights_s(double elements, GroupShape group) const {
  const auto shards = static_cast<int>(std::min<std::int64_t>(facts_.shards(), group.ranks));
  return constants_.network_factor *
         network_.gather_s(elements * element_, {shards, std::min(shards, group.per_node)});
}

}  // namespace trireme::planner
