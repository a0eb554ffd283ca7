#include "train/step/schedule_choice.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "core/log.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"
#include "device/torch_bridge.hpp"
#include "model/stages/stage_forward.hpp"
#include "parallel/collectives.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "pipeline/schedule_file.hpp"

namespace trireme::train {
namespace {

/// Returns the time of a message to the next pp rank while one arrives from the previous rank.
double transfer_s(comm::Communicator& pp, const at::Tensor& message) {
  constexpr int kTries = 3;
  const at::Tensor space = at::empty_like(message);
  const int next = (pp.rank() + 1) % pp.size();
  const int before = (pp.rank() + pp.size() - 1) % pp.size();
  double least = 0;
  for (int i = 0; i < kTries; ++i) {
    const Timer timer;
    const comm::Message send{next, message.data_ptr(), message.nbytes()};
    const comm::Message receive{before, space.data_ptr(), space.nbytes()};
    pp.exchange({.sends = {&send, 1},
                 .receives = {&receive, 1},
                 .stream = device::current_stream(message.device()),
                 .tag = "time of a transfer"})
        ->wait();
    least = i == 0 ? timer.seconds() : std::min(least, timer.seconds());
  }
  return least;
}

std::string bubble_text(const pipeline::Schedule& schedule, const pipeline::Timing& timing) {
  return number_text(std::round(1000 * pipeline::simulate(schedule, timing).bubble) / 1000);
}

}  // namespace

ScheduleChoice::ScheduleChoice(const parallel::Mesh& mesh, const model::Transformer& model)
    : mesh_(mesh), model_(model), schedule_(parallel::stage_schedule(mesh.config(), 0)) {
  if (parallel::searches_schedule(mesh.config()))
    least_s_.resize(static_cast<std::size_t>(schedule_.placement.stages()));
}

const pipeline::Schedule& ScheduleChoice::choose(int micro_batches) {
  const bool fits = found_ && found_->micro_batches == micro_batches;
  if (schedule_.micro_batches == micro_batches && fits == runs_found_) return schedule_;
  runs_found_ = fits;
  if (fits) stop_timing();
  schedule_ = fits ? *found_ : parallel::stage_schedule(mesh_.config(), micro_batches, timing_);
  return schedule_;
}

void ScheduleChoice::action_took(const pipeline::StageAction& pass, double seconds) {
  double& least =
      least_s_[static_cast<std::size_t>(pass.stage)][static_cast<std::size_t>(pass.kind)];
  least = least == 0 ? seconds : std::min(least, seconds);
}

void ScheduleChoice::after_update(std::span<const parallel::Microbatch> micro_batches) {
  constexpr int kTimedUpdates = 2;  // the first update is slower than later ones
  if (!times_actions() || micro_batches.empty() || ++timed_updates_ < kTimedUpdates) return;
  timing_ = slowest_times(model::stage_message_buffer(model_, micro_batches.front()));
  stop_timing();
  found_ = parallel::stage_schedule(mesh_.config(), schedule_.micro_batches, timing_);
  if (mesh_.world().rank() != 0) return;
  log::info(formatted(
      "schedule auto: with the measured action times, the predicted bubble is {}; before it was {}",
      bubble_text(*found_, timing_), bubble_text(schedule_, timing_)));
}

/// Returns the maximum over all ranks of the action times and of the time of one stage message.
pipeline::Timing ScheduleChoice::slowest_times(const at::Tensor& message) const {
  std::vector<double> mine;
  for (const auto& [forward, backward, input_grad, weight_grad] : least_s_) {
    // For an undivided backward action, assume that both of its matrix products take equally long.
    mine.push_back(forward);
    mine.push_back(input_grad > 0 ? input_grad : backward / 2);
    mine.push_back(weight_grad > 0 ? weight_grad : backward / 2);
  }
  mine.push_back(transfer_s(mesh_.group(parallel::Axis::pp), message));
  const at::Tensor all = at::tensor(mine, at::kDouble).to(message.device());
  parallel::all_reduce(mesh_.world(), all, comm::ReduceOp::max, "action times")->wait();
  const at::Tensor slowest = all.to(at::kCPU);
  const auto* value = slowest.const_data_ptr<double>();
  pipeline::Timing timing;
  for (std::size_t stage = 0; stage < least_s_.size(); ++stage, value += 3)
    timing.stages.push_back({value[0], value[1], value[2]});
  timing.transfer = *value;
  return timing;
}

void ScheduleChoice::take(const std::string& text) {
  const parallel::ParallelConfig& config = mesh_.config();
  if (!parallel::searches_schedule(config) || text.empty()) return;
  pipeline::Schedule known = pipeline::parse_schedule(text, "the checkpoint's schedule");
  const bool is_in_limit =
      config.in_flight == 0 || pipeline::simulate(known, {{pipeline::ActionTimes{}}}).peak() <=
                                   config.in_flight;  // limit may be new
  if (is_in_limit && known.placement == parallel::stage_placement(config))
    found_ = std::move(known);
}

}  // namespace trireme::train
