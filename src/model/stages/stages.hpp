#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"

namespace trireme::model {

/// A pipeline stage: consecutive layers. The first stage also has the embedding, the last one the
/// final norm and the head. The whole model is one stage.
struct StageRange {
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  bool has_embedding = true;
  bool has_head = true;

  static StageRange whole(const ModelConfig& config) { return {0, config.num_layers, true, true}; }

  bool operator==(const StageRange&) const = default;
};

/// Divides the layers into `count` stages (at most one per layer) so that the most expensive stage
/// costs as little as possible. Costs are FLOPs: a layer costs its matrices and its attention over
/// sequences of `seq_len`, the head its matrix, the embedding nothing.
std::vector<StageRange> balanced_stages(const ModelConfig& config, std::int64_t count,
                                        std::int64_t seq_len);

/// Parses "E3|4|4|3H": the layers of each stage, E with the embedding, H with the head. Throws
/// Error(usage) with a text "must be ..." unless the text describes `count` stages of all layers.
std::vector<StageRange> parse_stages(std::string_view text, const ModelConfig& config,
                                     std::int64_t count);

/// Formats stages as text for parse_stages.
std::string text_of(const std::vector<StageRange>& stages);

}  // namespace trireme::model
