#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::model {

/// The value of model.value_embeddings for every second layer, with the last layer.
constexpr std::string_view kAlternate = "alternate";

/// Parses a list of layers: "3,7,11", ascending, from 0. Throws Error(usage) with the expected form.
std::vector<std::int64_t> parse_layers(std::string_view text);
/// Returns the text that parse_layers reads.
std::string layers_text(const std::vector<std::int64_t>& layers);

}  // namespace trireme::model
