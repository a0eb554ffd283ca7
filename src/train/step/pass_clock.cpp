#include "train/step/pass_clock.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/timer.hpp"
#include "parallel/collectives.hpp"
#include "parallel/torch_bridge.hpp"

namespace trireme {
namespace {

/// Seconds of a message to the next rank of pp while one comes from the rank before.
double transfer_s(Communicator& pp, const at::Tensor& cargo) {
  constexpr int kTries = 3;
  const at::Tensor space = at::empty_like(cargo);
  const int next = (pp.rank() + 1) % pp.size();
  const int before = (pp.rank() + pp.size() - 1) % pp.size();
  double least = 0;
  for (int i = 0; i < kTries; ++i) {
    const Timer timer;
    const Message send{next, cargo.data_ptr(), cargo.nbytes()};
    const Message receive{before, space.data_ptr(), space.nbytes()};
    pp.exchange({.sends = {&send, 1},
                 .receives = {&receive, 1},
                 .stream = current_stream(cargo.device()),
                 .tag = "time of a transfer"})
        ->wait();
    least = i == 0 ? timer.seconds() : std::min(least, timer.seconds());
  }
  return least;
}

}  // namespace

void PassClock::note(const pipeline::Pass& pass, double seconds) {
  Least& stage = least_[static_cast<std::size_t>(pass.stage)];
  double* of_kind = nullptr;
  switch (pass.kind) {
    case pipeline::PassKind::forward:
      of_kind = &stage.forward;
      break;
    case pipeline::PassKind::backward:
      of_kind = &stage.backward;
      break;
    case pipeline::PassKind::input_grad:
      of_kind = &stage.input_grad;
      break;
    case pipeline::PassKind::weight_grad:
      of_kind = &stage.weight_grad;
      break;
  }
  *of_kind = *of_kind == 0 ? seconds : std::min(*of_kind, seconds);
}

pipeline::Timing PassClock::of_all(const Mesh& mesh, const at::Tensor& cargo) const {
  std::vector<double> mine;
  for (const Least& one : least_) {
    // A backward pass in one piece: its two products of each matrix are alike.
    mine.push_back(one.forward);
    mine.push_back(one.input_grad > 0 ? one.input_grad : one.backward / 2);
    mine.push_back(one.weight_grad > 0 ? one.weight_grad : one.backward / 2);
  }
  mine.push_back(transfer_s(mesh.group(Axis::pp), cargo));
  const at::Tensor all = at::tensor(mine, at::kDouble).to(cargo.device());
  all_reduce(mesh.world(), all, ReduceOp::max, "times of passes")->wait();
  const at::Tensor slowest = all.to(at::kCPU);
  const auto* const value = slowest.const_data_ptr<double>();
  pipeline::Timing timing;
  for (std::size_t stage = 0; stage < least_.size(); ++stage)
    timing.stages.push_back({value[3 * stage], value[3 * stage + 1], value[3 * stage + 2]});
  timing.transfer = value[mine.size() - 1];
  return timing;
}

}  // namespace trireme
