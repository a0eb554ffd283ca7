#pragma once
#include <map>
#include <string>
#include <string_view>

/// The head of a model, as a fact in StateDict::values and in a manifest. A language model has no
/// such value: its head is the output matrix.
namespace trireme::checkpoint {

/// Key of the head that a task has trained in the place of the output matrix. The value is the name
/// of the task; only this task starts from such a model.
inline constexpr const char* kHeadValue = "model_head";

/// The value of a reward model (`trireme reward`).
inline constexpr std::string_view kRewardModelHead = "reward";

/// Returns the value of kHeadValue; "" for a language model.
std::string head_of(const std::map<std::string, std::string>& values);

/// Throws Error(usage) that names `where` unless the model is a language model or has the head
/// `head`.
void check_head(const std::map<std::string, std::string>& values, std::string_view where,
                std::string_view head = "");

}  // namespace trireme::checkpoint
