#pragma once
#include <string>
#include <vector>

#include "core/log.hpp"
#include "data/shards/token_set.hpp"

namespace trireme {

/// One kind of loss: how much, and the option of `pack` that changes it.
struct Loss {
  log::Level level = log::Level::warn;  // info: nothing was left out whole, and few pairs cut
  std::string text;
};

/// What a set that is made lacks of its inputs, or holds changed. Empty if they are in it whole.
/// Fields that `ignore_fields` (--ignore-fields) names are an info, others that are not read a
/// warning.
std::vector<Loss> find_losses(const Manifest& manifest,
                              const std::vector<std::string>& ignore_fields);

/// Why `inputs` gave no document, for the refusal of a set that is not made: what was found in
/// them, with the first bad line.
std::string why_nothing(const std::string& inputs, const Manifest& manifest);

}  // namespace trireme
