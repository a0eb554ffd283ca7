#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ops/operations.hpp"
#include "train/config/config.hpp"

namespace trireme::train {

/// Splits the value of train.plain_ops at commas, without blanks around the names.
std::vector<std::string> plain_op_names(std::string_view text);

/// Returns the operations of train.plain_ops, which check() accepts; all without train.fused_ops.
std::vector<ops::Operation> plain_operations(const TrainConfig& config);

}  // namespace trireme::train
