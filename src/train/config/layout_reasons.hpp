#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/config/layout.hpp"

namespace trireme::train {

/// One reason why a layout is invalid: a key, its value and the allowed values.
struct Reason {
  std::string key;
  std::string value;
  std::string allowed;
};

/// Returns all reasons why the layout is invalid; empty if it is valid.
std::vector<Reason> layout_conflicts(const parallel::ParallelConfig& config,
                                     const LayoutFacts& facts);

/// Returns the number of tokens of a sequence of `length` tokens that a rank has at block input.
std::int64_t block_input_tokens(const parallel::ParallelConfig& config, std::int64_t length);

}  // namespace trireme::train
