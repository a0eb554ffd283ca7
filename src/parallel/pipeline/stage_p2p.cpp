#include "parallel/pipeline/stage_p2p.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "core/timer.hpp"
#include "device/torch_bridge.hpp"

namespace trireme::parallel {
namespace {

constexpr std::size_t kAhead = 1;
constexpr std::array<const char*, 2> kTags{"stage activations", "stage gradients"};

/// Returns the stage that receives a message from `stage`.
int receiver(StageMessage kind, int stage) {
  return kind == StageMessage::activations ? stage + 1 : stage - 1;
}

/// Returns every pair of ranks in which the first rank sends to the second.
std::set<std::pair<int, int>> pairs_of(const pipeline::Placement& placement) {
  std::set<std::pair<int, int>> pairs;
  for (std::size_t stage = 1; stage < placement.rank_of_stage.size(); ++stage) {
    const int before = placement.rank_of_stage[stage - 1];
    const int after = placement.rank_of_stage[stage];
    if (before != after) pairs.insert({{before, after}, {after, before}});
  }
  return pairs;
}

/// Returns the message that an action produces for another stage; nullopt for none.
std::optional<StageMessage> message_of(pipeline::ActionKind kind) {
  if (kind == pipeline::ActionKind::forward) return StageMessage::activations;
  if (pipeline::gives_input_grad(kind)) return StageMessage::gradients;
  return std::nullopt;
}

}  // namespace

StageP2P::StageP2P(comm::Communicator& pp, const pipeline::Placement& placement)
    : pp_(pp), placement_(placement) {
  const int me = pp.rank();
  // Pairs that share no rank get their groups in the same call of split().
  for (std::set<std::pair<int, int>> left = pairs_of(placement); !left.empty();) {
    std::set<int> taken;
    int color = -1;
    Link* mine = nullptr;
    for (auto pair = left.begin(); pair != left.end();) {
      const auto [from, to] = *pair;
      if (taken.contains(from) || taken.contains(to)) {
        ++pair;
        continue;
      }
      taken.insert({from, to});
      pair = left.erase(pair);
      if (from != me && to != me) continue;
      color = from;
      mine = from == me ? &to_[to] : &from_[from];
    }
    const bool receives = mine != nullptr && color != me;
    std::unique_ptr<comm::Communicator> group = pp.split(color, receives ? 1 : 0, "pp");
    if (mine != nullptr) mine->group = std::move(group);
  }
}

void StageP2P::begin(const pipeline::Schedule& schedule, std::function<at::Tensor(int)> space) {
  space_ = std::move(space);
  local_.clear();
  waited_s_ = 0;
  trains_ = std::ranges::any_of(
      schedule.lists[static_cast<std::size_t>(pp_.rank())],
      [](const pipeline::StageAction& action) { return pipeline::gives_input_grad(action.kind); });
  for (auto& [from, link] : from_) {
    link.order.clear();
    link.started = 0;
    for (const pipeline::StageAction& action : schedule.lists[static_cast<std::size_t>(from)]) {
      const auto kind = message_of(action.kind);
      if (!kind) continue;
      const int to = receiver(*kind, action.stage);
      if (has_stage(to) && rank_of(to) == pp_.rank())
        link.order.push_back({*kind, to, action.micro_batch});
    }
    start_receives(link, ahead());
  }
}

std::size_t StageP2P::ahead() const {
  return warm_[trains_ ? 1 : 0] ? kAhead : 0;
}

void StageP2P::start_receives(Link& link, std::size_t until) {
  for (; link.started < std::min(until, link.order.size()); ++link.started) {
    const Key& key = link.order[link.started];
    at::Tensor tensor = space_(key.micro_batch);
    const comm::Message message{0, tensor.data_ptr(), tensor.nbytes()};
    comm::WorkPtr work = link.group->exchange({.receives = {&message, 1},
                                               .stream = device::current_stream(tensor.device()),
                                               .tag = kTags[static_cast<std::size_t>(key.kind)]});
    link.arriving[key] = {std::move(tensor), std::move(work)};
  }
}

void StageP2P::send(StageMessage kind, int stage, int micro_batch, const at::Tensor& tensor) {
  const int to = receiver(kind, stage);
  if (!has_stage(to)) return;
  if (rank_of(to) == pp_.rank()) {
    local_[{kind, to, micro_batch}] = tensor;
    return;
  }
  Link& link = to_.at(rank_of(to));
  at::Tensor sent = tensor.contiguous();
  const comm::Message message{1, sent.data_ptr(), sent.nbytes()};
  comm::WorkPtr work = link.group->exchange({.sends = {&message, 1},
                                             .stream = device::current_stream(sent.device()),
                                             .tag = kTags[static_cast<std::size_t>(kind)]});
  leaving_.emplace_back(std::move(sent), std::move(work));
}

at::Tensor StageP2P::receive(StageMessage kind, int stage, int micro_batch) {
  const Key key{kind, stage, micro_batch};
  const int sender = kind == StageMessage::activations ? stage - 1 : stage + 1;
  if (!has_stage(sender)) return {};
  if (rank_of(sender) == pp_.rank()) return std::move(local_.extract(key).mapped());
  Link& link = from_.at(rank_of(sender));
  const auto place = std::find(link.order.begin(), link.order.end(), key) - link.order.begin();
  TRIREME_ASSERT(place < std::ssize(link.order));
  start_receives(link, static_cast<std::size_t>(place) + 1 + ahead());
  auto arrived = std::move(link.arriving.extract(key).mapped());
  const Timer timer;
  arrived.second->wait();
  waited_s_ += timer.seconds();
  return arrived.first;
}

void StageP2P::poll() {
  while (!leaving_.empty() && leaving_.front().second->poll()) leaving_.pop_front();
}

void StageP2P::finish() {
  for (auto& [tensor, work] : leaving_) work->wait();
  leaving_.clear();
  warm_[trains_ ? 1 : 0] = true;
}

std::vector<comm::Communicator*> StageP2P::groups() const {
  std::vector<comm::Communicator*> groups;
  for (const auto* links : {&to_, &from_})
    for (const auto& [id, link] : *links) groups.push_back(link.group.get());
  return groups;
}

}  // namespace trireme::parallel
