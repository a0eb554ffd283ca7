#include "model/stages.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme {
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

/// FLOPs of a token forward.
double layer_cost(const ModelConfig& c, std::int64_t seq_len) {
  const auto d = static_cast<double>(c.hidden_size);
  const auto heads = static_cast<double>(c.num_heads * c.head_dim);
  const auto keys = static_cast<double>(c.num_kv_heads * c.head_dim);
  const double matrices = d * (2 * heads + 2 * keys + 3 * static_cast<double>(c.intermediate_size));
  return 2 * matrices + 2 * heads * static_cast<double>(seq_len);  // causal: half of all pairs
}

}  // namespace

std::vector<StageRange> balanced_stages(const ModelConfig& config, std::int64_t count,
                                        std::int64_t seq_len) {
  TRIREME_ASSERT(count >= 1 && count <= std::max<std::int64_t>(1, config.num_layers));
  const double layer = layer_cost(config, seq_len);
  const double head =
      2 * static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  // Layers are alike: only how many the last stage has is open, the others share evenly.
  std::vector<std::int64_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t last = 1; last <= config.num_layers - (count - 1); ++last) {
    const std::int64_t left = config.num_layers - last;
    if (count == 1 && left > 0) continue;
    std::vector<std::int64_t> layers;
    for (std::int64_t stage = 0; stage + 1 < count; ++stage)
      layers.push_back(left / (count - 1) + (stage < left % (count - 1) ? 1 : 0));
    layers.push_back(last);
    const double most = layer * static_cast<double>(*std::ranges::max_element(layers));
    const double cost = std::max(most, layer * static_cast<double>(last) + head);
    if (cost > least) continue;
    least = cost;
    best = layers;
  }
  return from_counts(best);
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
      refuse("the embedding is in the first stage alone, the head in the last");
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

}  // namespace trireme
