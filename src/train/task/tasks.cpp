#include <array>

#include "train/task/pretrain.hpp"
#include "train/task/sft.hpp"

namespace trireme {
namespace {

constexpr std::array kTasks{
    TaskRow{"pretrain", "train a model on a token set", make_pretrain},
    TaskRow{"sft", "fine-tune a model on chats (--init)", make_sft},
};

}  // namespace

std::span<const TaskRow> task_rows() noexcept {
  return kTasks;
}

}  // namespace trireme
