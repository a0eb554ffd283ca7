#include <array>
#include <filesystem>

#include "train/task/task.hpp"

namespace trireme::train {

std::unique_ptr<Task> make_pretrain();  // next-token prediction over whole documents
std::unique_ptr<Task> make_sft();       // cross entropy over the assistant's tokens
std::unique_ptr<Task> make_dpo();       // preference pairs with a frozen reference
std::unique_ptr<Task> make_kto();       // labeled answers with a frozen reference
std::unique_ptr<Task> make_reward();    // reward model on preference pairs
std::unique_ptr<Task> make_rl();        // answers of the model itself, with rewards
std::unique_ptr<Task> make_distill();   // distillation from a frozen teacher of any shape

namespace {

constexpr std::array kTasks{
    TaskRow{"pretrain", "train a model on a token set", make_pretrain},
    TaskRow{"sft", "fine-tune a model on chats", make_sft},
    TaskRow{"dpo", "train a model on preferred and rejected answers", make_dpo},
    TaskRow{"kto", "train a model on answers with a label, desirable or not", make_kto},
    TaskRow{"reward", "train a reward model on preferred and rejected answers", make_reward},
    TaskRow{"distill", "train a model on the outputs of a teacher model", make_distill},
    TaskRow{"rl", "train a model on rewards of its own answers", make_rl},
};

}  // namespace

std::span<const TaskRow> task_rows() noexcept {
  return kTasks;
}

std::string absolute_path_or_empty(const std::string& place) {
  return place.empty() ? place : std::filesystem::absolute(place).lexically_normal().string();
}

}  // namespace trireme::train
