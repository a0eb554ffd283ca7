#include "train/state/continuation.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/rounded_text.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"
#include "train/state/resume.hpp"

namespace trireme::train {
namespace {

/// Learning-rate schedules that agree for so many steps count as equal.
constexpr std::int64_t kMostStepsCompared = 1'000'000;

/// Keys of the layout that change when weights are gathered and what is computed twice, but no sum.
constexpr std::array<std::string_view, 4> kExactKeys{"parallel.pp_regather", "parallel.recompute",
                                                     "parallel.zero_prefetch",
                                                     "parallel.zero_reshard"};

bool keeps_bits(const std::string& key) {
  return std::ranges::find(kExactKeys, key) != kExactKeys.end();
}

std::optional<std::int64_t> steps_before(const RunValues& values) {
  return parse_integer(values.configured("train.steps").value_or(""));
}

/// Returns "from step 5 on ..." if a new train.steps changes the schedule of the learning rate or
/// of the weight decay.
std::string rate_changes(const Continuation& c) {
  const std::int64_t now = c.config.train.steps;
  const std::int64_t before = steps_before(c.values).value_or(now);
  if (before == now) return "";
  const std::int64_t last = std::min(std::max(before, now), c.step + kMostStepsCompared);
  for (std::int64_t step = c.step + 1; step <= last; ++step) {
    const double rate_before = optim::learning_rate(c.config.optim, step, before);
    const double rate_now = optim::learning_rate(c.config.optim, step, now);
    if (rate_before == rate_now) continue;
    return formatted(
        "from step {} on the learning rate differs, because train.steps = {} (was {}) moves the end of the {} schedule: at step {} {} (was {})",
        step, now, before, c.config.optim.schedule, step, rounded_text(rate_now),
        rounded_text(rate_before));
  }
  const std::string decay = optim::decay_schedule(c.config.optim);
  if (decay != "constant")
    return formatted(
        "the next steps have another weight decay, because train.steps = {} (was {}) moves the end of the {} schedule (optim.decay_schedule)",
        now, before, decay);
  return "";
}

/// Compares the plan of the data. Later phases may change, so only earlier samples must be equal.
std::string plan_changes(const Continuation& c) {
  const auto& saved = c.values.plan_hash;
  if (!saved || c.plan_hash.empty() || *saved == c.plan_hash) return "";
  return "later phases of data.path have changed";
}

/// Returns a text if a save averaged the replicas between two regular averages of local steps.
std::string average_changes(const Continuation& c) {
  const std::int64_t every = c.config.parallel.local_steps;
  for (const std::int64_t regular : {every, c.config.checkpoint.every, c.config.train.eval_every})
    if (regular > 0 && c.step % regular == 0) return "";
  return formatted(
      "weights and optimizer state were averaged at step {} for the save, between two averages of parallel.local_steps = {}",
      c.step, every);
}

/// Returns the reason why later steps are a different training although the state is exact; "" if
/// there is none.
std::string training_changes(const Continuation& c, const std::string& machine,
                             const std::vector<ChangedKey>& changes) {
  const std::int64_t local_steps = c.config.parallel.local_steps;
  if (local_steps > 1 && machine.find("layout") != std::string::npos)
    return formatted(
        "each data rank trains a replica of its own for parallel.local_steps = {}, and the ranks have changed",
        local_steps);
  const model::MoeConfig& moe = c.config.model.moe;
  if (!moe.has_aux_loss() || moe.router_aux_loss != "micro_batch") return "";
  for (const ChangedKey& change : changes) {
    if (change.key != "train.micro_batch") continue;
    return "the auxiliary loss is a mean per micro-batch (model.router_aux_loss), and the micro-batches have changed";
  }
  return "";
}

/// Joins the texts that are not empty.
std::string joined_texts(std::vector<std::string> texts) {
  std::erase(texts, "");
  return joined(texts, "; ");
}

}  // namespace

std::string describe_continuation(const Continuation& continuation) {
  const std::optional<std::string> machine =
      fingerprint_changes(continuation.values.fingerprint, continuation.fingerprint);
  std::vector<std::string> rounding;
  if (machine && !machine->empty()) rounding.push_back(*machine);
  bool is_other_training = false;
  const std::vector<ChangedKey> changes = changed_keys(continuation.values, continuation.keys);
  for (const ChangedKey& change : changes) {
    if (!may_differ(change.key)) is_other_training = true;
    // Other keys of the layout change the order of sums, for example over buckets. A CUDA graph pads
    // decoding steps, so products have other shapes. With graphs of micro-batches, attention pads the
    // documents, which changes the order of sums in its backward pass.
    const bool is_layout = change.key.starts_with("parallel.") && !keeps_bits(change.key);
    const bool is_kernel = change.key == "rl.cuda_graph" || change.key == "train.cuda_graph" ||
                           (change.key == "train.deterministic" && continuation.is_on_gpu);
    if (!is_layout && !is_kernel) continue;
    rounding.push_back(formatted("{} {} (was {})", change.key, change.now, change.was));
  }
  if (is_other_training) return "the state continues under another configuration";
  const std::string later = joined_texts(
      {rate_changes(continuation), plan_changes(continuation), average_changes(continuation)});
  if (!machine) {
    return joined_texts(
        {"the checkpoint does not say how it was computed: the state is exact, losses continue within rounding",
         later});
  }
  if (const std::string why = training_changes(continuation, *machine, changes); !why.empty())
    return joined_texts(
        {formatted(
             "the state is exact, the following steps are a different training: {}: changed {}",
             why, joined(rounding, ", ")),
         later});
  if (!rounding.empty())
    return joined_texts(
        {formatted("the state is exact, losses continue within rounding: changed {}",
                   joined(rounding, ", ")),
         later});
  if (continuation.is_on_gpu && !continuation.config.train.deterministic)
    return joined_texts(
        {"the state is exact, losses continue within rounding: train.deterministic is false",
         later});
  if (!later.empty()) return formatted("the state is exact; {}", later);
  return "exact: losses and weights continue bit for bit as without the interruption";
}

}  // namespace trireme::train
