#include "checkpoint/format/model_head.hpp"

#include "core/error.hpp"

namespace trireme::checkpoint {

std::string head_of(const std::map<std::string, std::string>& values) {
  const auto found = values.find(kHeadValue);
  return found == values.end() ? "" : found->second;
}

void check_head(const std::map<std::string, std::string>& values, std::string_view where,
                std::string_view head) {
  const std::string own = head_of(values);
  if (own.empty() || own == head) return;
  if (own != kRewardModelHead)
    fail(ErrorKind::usage, "{} has a head of `trireme {}`, which this command cannot use", where,
         own);
  fail(
      ErrorKind::usage,
      "{} is a reward model: it gives rewards, and its output matrix is not trained for texts. A language model is required, such as the model that the reward model started from. To score pairs with this model, use `trireme eval --reward {}`",
      where, where);
}

}  // namespace trireme::checkpoint
