#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ops/operations.hpp"

namespace trireme::train {

/// Splits the value of train.plain_ops at commas, without blanks around the names.
std::vector<std::string> plain_op_names(std::string_view text);

/// Returns the operations of a value of train.plain_ops that check() accepts.
std::vector<ops::Operation> plain_operations(std::string_view text);

}  // namespace trireme::train
