#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/config.hpp"

namespace trireme::model {

/// The linears of a block, in storage order.
enum class BlockLinear : std::size_t { q, k, v, o, gate, up, down };

/// Shape of y = x W^T with W [rows, columns], named "self_attn.q_proj".
struct LinearShape {
  std::string_view module;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  /// Returns the last part of the name: "q_proj".
  [[nodiscard]] std::string_view name() const { return module.substr(module.find('.') + 1); }
};

using LinearShapes = std::array<LinearShape, 7>;

/// The gate of a plain MLP has 0 rows.
LinearShapes block_linears(const ModelConfig& model);

/// Low-rank adapters beside frozen weights: y = W x + scale * B (A dropout(x)) with A [rank,
/// columns] and B [rows, rank], for each targeted linear of every block. Sources: Hu et al.,
/// "LoRA", ICLR 2022; rslora: Kalajdzievski, "A rank stabilization scaling factor for fine-tuning
/// with LoRA", 2023.
struct LoraConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;
  std::string targets = "all-linear";
  bool rslora = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("rank", self.rank, "rank of the adapters; 0: no adapters, train all weights");
    visit("alpha", self.alpha, "scale of the adapter output, alpha / rank; 0: use the rank");
    visit("dropout", self.dropout, "dropout probability on the adapter input, in [0, 1)");
    visit("targets", self.targets,
          "linear layers with an adapter: all-linear, square (as many rows as columns), or a "
          "comma-separated list (q_proj,v_proj)");
    visit("rslora", self.rslora, "scale by alpha / sqrt(rank) instead of alpha / rank");
  }

  [[nodiscard]] bool on() const { return rank > 0; }

  [[nodiscard]] double scale() const;
};

/// Returns which linears have an adapter, in the order of BlockLinear; none if the rank is 0.
/// Unknown names are ignored. In a model with experts, the linears of the MLP have no adapter.
std::array<bool, 7> lora_targets(const LoraConfig& config, const ModelConfig& model);

void check(const LoraConfig& config, Problems& problems);

/// Reports targets that the resolved model does not have, and targets that leave nothing to train.
void check_targets(const LoraConfig& config, const ModelConfig& model, Problems& problems);

/// Returns the number of trainable elements in all blocks.
std::int64_t num_lora_parameters(const LoraConfig& config, const ModelConfig& model);

/// Returns the parts of the model that the FLOPs of a token count.
TrainedParts trained_parts(const LoraConfig& config, const ModelConfig& model,
                           bool has_reward_head);

}  // namespace trireme::model
