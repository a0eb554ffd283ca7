#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme {

/// A value that begins at a step: "100:0.5".
struct StepValue {
  std::int64_t step = 0;
  double value = 0;
};

/// Parses a list such as "0:32, 1000:64": steps of 0 or more in increasing order. Blanks around
/// numbers are allowed. Throws Error(usage); the message begins with a verb and names the entry.
std::vector<StepValue> parse_step_values(std::string_view text);

}  // namespace trireme
