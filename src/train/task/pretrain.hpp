#pragma once
#include <memory>

#include "train/task/task.hpp"

namespace trireme {

/// Next-token prediction over whole documents.
std::unique_ptr<Task> make_pretrain();

}  // namespace trireme
