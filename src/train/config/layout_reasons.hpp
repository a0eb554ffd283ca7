#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/config/layout.hpp"

namespace trireme {

/// A key, its value and what it must be.
struct Reason {
  std::string key;
  std::string value;
  std::string allowed;
};

/// Every reason why a layout cannot be; none if it can.
std::vector<Reason> reasons_against(const ParallelConfig& config, const LayoutFacts& facts);

/// Tokens of a sequence of `length` that enter a block on a rank: of them pieces are made.
std::int64_t entering_tokens(const ParallelConfig& config, std::int64_t length);

}  // namespace trireme
