#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/problems.hpp"
#include "parallel/param_spec.hpp"

namespace trireme::optim {

/// Settings of one group of parameters that replace those of the optimizer.
struct GroupValues {
  std::string group;
  std::optional<double> lr;  // peak learning rate
  std::optional<double> beta1;
  std::optional<double> beta2;
  std::optional<double> weight_decay;  // for all parameters of the group, also vectors
};

/// Parses a list such as "embed.beta2=0.995,smear.lr=0.2" without blanks. Throws
/// Error(usage); the message begins with a verb and names the entry.
std::vector<GroupValues> parse_group_values(std::string_view text);

/// Adds a problem if `text` (optim.groups) is invalid.
void check_group_values(const std::string& text, Problems& problems);

/// Returns the group of a parameter that is no matrix of a block: embed, head, value, a group of
/// trained numbers of the residual stream, or scalar.
std::string_view group_of(const parallel::ParamSpec& spec);

}  // namespace trireme::optim
