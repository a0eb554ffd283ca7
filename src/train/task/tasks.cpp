#include <array>

#include "train/task/pretrain.hpp"

namespace trireme {
namespace {

constexpr std::array kTasks{
    TaskRow{"pretrain", "train a model on a token set", make_pretrain},
};

}  // namespace

std::span<const TaskRow> task_rows() noexcept {
  return kTasks;
}

}  // namespace trireme
