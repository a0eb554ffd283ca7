#pragma once
#include <memory>

#include "train/task/task.hpp"

namespace trireme {

/// A student learns from the data and from a frozen teacher of any shape.
std::unique_ptr<Task> make_distill();

}  // namespace trireme
