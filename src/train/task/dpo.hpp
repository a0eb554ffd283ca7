#pragma once
#include <memory>

#include "train/task/task.hpp"

namespace trireme {

/// Learning from preferred answers (DPO, IPO) beside a frozen reference.
std::unique_ptr<Task> make_dpo();

}  // namespace trireme
