#pragma once
#include <memory>

#include "train/task/task.hpp"

namespace trireme {

/// Next-token prediction over whole documents.
std::unique_ptr<Task> make_pretrain();

/// Cross entropy over the targets of a batch, each times its weight where the batch gives some.
std::unique_ptr<Objective> make_cross_entropy(const TaskContext& context);

}  // namespace trireme
