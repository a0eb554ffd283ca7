#include "model/stages/stages.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::model {
namespace {

std::vector<StageRange> from_counts(const std::vector<std::int64_t>& layers) {
  std::vector<StageRange> stages;
  std::int64_t first = 0;
  for (const std::int64_t count : layers) {
    stages.push_back({first, first + count, false, false});
    first += count;
  }
  stages.front().has_embedding = true;
  stages.back().has_head = true;
  return stages;
}

/// Returns the forward FLOPs per token of a layer.
double layer_cost(const ModelConfig& c, std::int64_t seq_len, std::int64_t layer) {
  const bool experts = c.moe.in_layer(layer);
  const auto d = static_cast<double>(c.hidden_size);
  const auto heads = static_cast<double>(c.num_heads * c.head_dim);
  const auto keys = static_cast<double>(c.num_kv_heads * c.head_dim);
  const MoeConfig& moe = c.moe;
  const std::int64_t of_experts =
      moe.num_experts_per_tok * moe.moe_intermediate_size + moe.shared_width();
  const auto width = static_cast<double>(experts ? of_experts : c.intermediate_size);
  const double of_mlp = experts || c.gated_mlp() ? 3 : 2;
  const double matrices = d * (2 * heads + 2 * keys + of_mlp * width +
                               static_cast<double>(experts ? moe.num_experts : 0));
  const std::int64_t seen = c.attention_setup(layer).mask.keys_of_last_query(seq_len);
  return 2 * matrices + 2 * heads * static_cast<double>(seen);  // causal: half of all pairs
}

constexpr double kRounding = 1e-12;  // relative rounding error of cost sums

struct Costs {
  std::vector<double> before{0.0};  // prefix sums: cost of the layers before each layer
  double head = 0;

  [[nodiscard]] double of(std::int64_t from, std::int64_t end, bool with_head) const {
    return before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(from)] +
           (with_head ? head : 0);
  }
};

/// Returns the fewest stages with costs of at most `bound`, filled from the head backwards.
std::int64_t stages_within(const Costs& costs, double bound) {
  std::int64_t stages = 0;
  for (std::int64_t end = std::ssize(costs.before) - 1; end > 0; ++stages) {
    std::int64_t from = end - 1;
    if (costs.of(from, end, stages == 0) > bound) return std::numeric_limits<std::int64_t>::max();
    while (from > 0 && costs.of(from - 1, end, stages == 0) <= bound) --from;
    end = from;
  }
  return stages;
}

/// Returns the lowest possible cost of the most expensive of `count` stages.
double least_bound(const Costs& costs, std::int64_t count) {
  double too_little = 0;
  double enough = costs.of(0, std::ssize(costs.before) - 1, true);
  while (enough - too_little > kRounding / 4 * enough) {
    const double middle = (too_little + enough) / 2;
    if (middle <= too_little || middle >= enough) break;
    (stages_within(costs, middle) <= count ? enough : too_little) = middle;
  }
  return enough;
}

}  // namespace

std::vector<StageRange> balanced_stages(const ModelConfig& config, std::int64_t count,
                                        std::int64_t seq_len) {
  const std::int64_t num_layers = config.num_layers;
  TRIREME_ASSERT(count >= 1 && count <= std::max<std::int64_t>(1, num_layers));
  if (count == 1) return from_counts({num_layers});
  Costs costs;
  for (std::int64_t layer = 0; layer < num_layers; ++layer)
    costs.before.push_back(costs.before.back() + layer_cost(config, seq_len, layer));
  costs.head = 2 * static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  const double bound = least_bound(costs, count) * (1 + kRounding);

  // best[stages][from] is the most even division (least squares) of the layers from `from` on into
  // `stages` stages. All of these stages stay within the bound, and the longest stages come first.
  struct Rest {
    double squares = std::numeric_limits<double>::infinity();
    std::int64_t first = 0;  // number of layers in the first of these stages
  };

  const auto at = [](auto& all, std::int64_t i) -> auto& {
    return all[static_cast<std::size_t>(i)];
  };
  std::vector<std::vector<Rest>> best(static_cast<std::size_t>(count) + 1,
                                      std::vector<Rest>(static_cast<std::size_t>(num_layers) + 1));
  at(at(best, 0), num_layers).squares = 0;
  for (std::int64_t stages = 1; stages <= count; ++stages) {
    for (std::int64_t from = num_layers - stages; from >= 0; --from) {
      Rest& rest = at(at(best, stages), from);
      for (std::int64_t end = from + 1; end <= num_layers; ++end) {
        const double cost = costs.of(from, end, stages == 1);
        if (cost > bound) break;
        const double squares = cost * cost + at(at(best, stages - 1), end).squares;
        if (squares <= rest.squares * (1 + kRounding)) rest = {squares, end - from};
      }
    }
  }
  std::vector<std::int64_t> layers;
  for (std::int64_t stages = count, from = 0; stages > 0; from += layers.back(), --stages)
    layers.push_back(at(at(best, stages), from).first);
  return from_counts(layers);
}

std::vector<StageRange> parse_stages(std::string_view text, const ModelConfig& config,
                                     std::int64_t count) {
  const auto refuse = [&](const std::string& why) {
    fail(
        ErrorKind::usage,
        "must be auto or the layers of {} stages with E at the first and H at the last (E3|4|4|3H): "
        "{}",
        count, why);
  };
  std::vector<std::int64_t> layers;
  std::int64_t all = 0;
  const std::vector<std::string> parts = split(text, '|');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::string_view part = parts[i];
    const bool first = part.starts_with('E');
    if (first) part.remove_prefix(1);
    const bool last = part.ends_with('H');
    if (last) part.remove_suffix(1);
    if (first != (i == 0) || last != (i + 1 == parts.size()))
      refuse("the embedding is in the first stage only, the head in the last stage only");
    const auto number = parse_integer(part);
    if (!number || *number < 1 || *number > config.num_layers)
      refuse(formatted("'{}' is no number of layers", part));
    layers.push_back(*number);
    all += *number;
  }
  if (std::ssize(layers) != count) refuse(formatted("it has {} stages", layers.size()));
  if (all != config.num_layers)
    refuse(formatted("it has {} layers, the model {}", all, config.num_layers));
  return from_counts(layers);
}

std::string text_of(const std::vector<StageRange>& stages) {
  return joined(stages, "|", [](const StageRange& stage) {
    return formatted("{}{}{}", stage.has_embedding ? "E" : "", stage.end_layer - stage.first_layer,
                     stage.has_head ? "H" : "");
  });
}

}  // namespace trireme::model
