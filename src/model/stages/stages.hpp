#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"

namespace trireme {

/// One stage of a pipeline: neighbouring layers, with the embedding before the first and the final
/// norm and the head behind the last. The whole model is one.
struct StageRange {
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  bool has_embedding = true;
  bool has_head = true;

  static StageRange whole(const ModelConfig& config) { return {0, config.num_layers, true, true}; }

  bool operator==(const StageRange&) const = default;
};

/// All `count` stages, at most as many as layers: of all ways in which each has a layer or more one
/// whose dearest stage costs least. A layer costs its matrices and its attention over sequences of
/// `seq_len`, the head its matrix, in FLOPs; the embedding is a lookup.
std::vector<StageRange> balanced_stages(const ModelConfig& config, std::int64_t count,
                                        std::int64_t seq_len);

/// "E3|4|4|3H": layers of each stage, E with the embedding, H with the head. Throws Error(usage),
/// "must be ...", unless they are `count` stages of all layers.
std::vector<StageRange> parse_stages(std::string_view text, const ModelConfig& config,
                                     std::int64_t count);

/// Such a text.
std::string text_of(const std::vector<StageRange>& stages);

}  // namespace trireme
