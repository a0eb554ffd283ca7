#pragma once
#include <memory>

#include "train/task/task.hpp"

namespace trireme {

/// Supervised fine-tuning on chats: cross entropy over what the assistant says.
std::unique_ptr<Task> make_sft();

}  // namespace trireme
