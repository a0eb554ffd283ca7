#include "parallel/pipeline/stage_links.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "core/error.hpp"
#include "core/timer.hpp"
#include "parallel/torch_bridge.hpp"

namespace trireme {
namespace {

constexpr std::size_t kAhead = 2;  // receives beside the one that is waited for
constexpr std::array<const char*, 2> kTags{"stage activations", "stage gradients"};

/// The stage that gets what `stage` sends.
int receiver(StageCargo cargo, int stage) {
  return cargo == StageCargo::activations ? stage + 1 : stage - 1;
}

/// Every pair of ranks with something to send, from the first to the second.
std::set<std::pair<int, int>> pairs_of(const pipeline::Placement& placement, StageCargo cargo) {
  std::set<std::pair<int, int>> pairs;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const int to = receiver(cargo, stage);
    if (to < 0 || to >= placement.stages()) continue;
    const auto rank = [&](int one) {
      return placement.rank_of_stage[static_cast<std::size_t>(one)];
    };
    if (rank(stage) != rank(to)) pairs.emplace(rank(stage), rank(to));
  }
  return pairs;
}

}  // namespace

StageLinks::StageLinks(Communicator& pp, const pipeline::Placement& placement)
    : pp_(pp), placement_(placement) {
  const int me = pp.rank();
  for (const StageCargo cargo : {StageCargo::activations, StageCargo::gradients}) {
    // Pairs without a rank in common are made by one call.
    std::set<std::pair<int, int>> left = pairs_of(placement, cargo);
    while (!left.empty()) {
      std::set<int> taken;
      int color = -1;
      for (auto pair = left.begin(); pair != left.end();) {
        const auto [from, to] = *pair;
        if (taken.contains(from) || taken.contains(to)) {
          ++pair;
          continue;
        }
        taken.insert({from, to});
        if (from == me || to == me) color = from;
        pair = left.erase(pair);
        if (from == me) to_[{to, cargo}] = {nullptr, from < to ? 1 : 0};
        if (to == me) from_[{from, cargo}] = {nullptr, from < to ? 0 : 1};
      }
      std::unique_ptr<Communicator> group = pp.split(color, me, "pp");
      for (auto* links : {&to_, &from_})
        for (auto& [id, link] : *links)
          if (!link.group && group) link.group = std::move(group);
    }
  }
}

void StageLinks::begin(const pipeline::Schedule& schedule, std::function<at::Tensor(int)> space) {
  space_ = std::move(space);
  here_.clear();
  waited_s_ = 0;
  for (auto& [id, link] : from_) {
    const auto [from, cargo] = id;
    link.order.clear();
    link.started = 0;
    for (const pipeline::Pass& pass : schedule.lists[static_cast<std::size_t>(from)]) {
      const bool sends = cargo == StageCargo::activations ? pass.kind == pipeline::PassKind::forward
                                                          : gives_input_grad(pass.kind);
      const int to = receiver(cargo, pass.stage);
      if (sends && to >= 0 && to < placement_.stages() && rank_of(to) == pp_.rank())
        link.order.push_back({cargo, to, pass.micro_batch});
    }
    start_receives(link, kAhead);
  }
}

void StageLinks::start_receives(Link& link, std::size_t until) {
  for (; link.started < std::min(until, link.order.size()); ++link.started) {
    const Key& key = link.order[link.started];
    at::Tensor tensor = space_(key.micro_batch);
    const Message message{link.peer, tensor.data_ptr(), tensor.nbytes()};
    WorkPtr work = link.group->exchange({.receives = {&message, 1},
                                         .stream = current_stream(tensor.device()),
                                         .tag = kTags[static_cast<std::size_t>(key.cargo)]});
    link.arriving[key] = {std::move(tensor), std::move(work)};
  }
}

bool StageLinks::has_sender(StageCargo cargo, int stage) const {
  return cargo == StageCargo::activations ? stage > 0 : stage + 1 < placement_.stages();
}

void StageLinks::send(StageCargo cargo, int stage, int micro_batch, const at::Tensor& tensor) {
  const int to = receiver(cargo, stage);
  if (rank_of(to) == pp_.rank()) {
    here_[{cargo, to, micro_batch}] = tensor;
    return;
  }
  Link& link = to_.at({rank_of(to), cargo});
  at::Tensor sent = tensor.contiguous();
  const Message message{link.peer, sent.data_ptr(), sent.nbytes()};
  WorkPtr work = link.group->exchange({.sends = {&message, 1},
                                       .stream = current_stream(sent.device()),
                                       .tag = kTags[static_cast<std::size_t>(cargo)]});
  leaving_.emplace_back(std::move(work), std::move(sent));
}

at::Tensor StageLinks::receive(StageCargo cargo, int stage, int micro_batch) {
  const Key key{cargo, stage, micro_batch};
  const int sender = cargo == StageCargo::activations ? stage - 1 : stage + 1;
  if (rank_of(sender) == pp_.rank()) return std::move(here_.extract(key).mapped());
  Link& link = from_.at({rank_of(sender), cargo});
  const auto place = std::find(link.order.begin(), link.order.end(), key) - link.order.begin();
  TRIREME_ASSERT(place < std::ssize(link.order));
  start_receives(link, static_cast<std::size_t>(place) + 1 + kAhead);
  auto arrived = std::move(link.arriving.extract(key).mapped());
  const Timer timer;
  arrived.second->wait();
  waited_s_ += timer.seconds();
  return arrived.first;
}

void StageLinks::poll() {
  while (!leaving_.empty() && leaving_.front().first->poll()) leaving_.pop_front();
}

void StageLinks::finish() {
  for (auto& [work, tensor] : leaving_) work->wait();
  leaving_.clear();
}

std::vector<Communicator*> StageLinks::groups() const {
  std::vector<Communicator*> groups;
  for (const auto* links : {&to_, &from_})
    for (const auto& [id, link] : *links) groups.push_back(link.group.get());
  return groups;
}

}  // namespace trireme
