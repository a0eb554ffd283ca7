#include "parallel/pipeline/stage_p2p.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "pipeline/named.hpp"

/// Tests that the messages of pipeline stages do not deadlock on GPUs. Each rank of a real StageP2P
/// runs alone and records what it enqueues, because nothing blocks the host there. Then a model of
/// the devices runs all records: the operations of a group run one after another, and the compute
/// stream waits where wait() was called.
namespace trireme::testing {
namespace {

/// A group of a sender and a receiver: the number of the split() and its color, on both ranks.
using GroupId = std::pair<int, int>;

/// One entry of a rank's record: a message of a group, or a wait for the entry `target`.
struct Enqueued {
  enum class Kind { send, receive, wait };

  Kind kind = Kind::wait;
  GroupId group = {};
  std::size_t target = 0;
};

using Record = std::vector<Enqueued>;

class RecordedWork final : public comm::Work {
 public:
  RecordedWork(Record& record, std::size_t entry) : record_(record), entry_(entry) {}

  bool poll() override { return false; }

  void wait() override { record_.push_back({.target = entry_}); }

 private:
  Record& record_;
  std::size_t entry_;
};

class RecordedGroup final : public comm::Communicator {
 public:
  RecordedGroup(Record& record, int rank, int size, GroupId id = {})
      : record_(record), rank_(rank), size_(size), id_(id) {}

  [[nodiscard]] int rank() const override { return rank_; }

  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] const std::string& name() const override { return name_; }

  [[nodiscard]] const char* backend() const override { return "record"; }

  comm::WorkPtr exchange(const comm::Exchange& request) override {
    using enum Enqueued::Kind;
    record_.push_back({.kind = request.sends.empty() ? receive : send, .group = id_});
    return std::make_unique<RecordedWork>(record_, record_.size() - 1);
  }

  std::unique_ptr<Communicator> split(int color, int key, const std::string&) override {
    const GroupId id{splits_++, color};
    if (color < 0) return nullptr;
    return std::make_unique<RecordedGroup>(record_, key, 2, id);
  }

  comm::WorkPtr all_reduce(const comm::Reduction&) override { return unused(); }

  comm::WorkPtr reduce_scatter(const comm::Reduction&) override { return unused(); }

  comm::WorkPtr all_gather(const comm::AllGather&) override { return unused(); }

  comm::WorkPtr broadcast(const comm::Broadcast&) override { return unused(); }

  comm::WorkPtr all_to_all(const comm::AllToAll&) override { return unused(); }

  void barrier(const comm::Barrier&) override { (void)unused(); }

  [[nodiscard]] std::vector<comm::TrafficRow> traffic() const override { return {}; }

  [[nodiscard]] std::vector<comm::CommRecord> recent() const override { return {}; }

 private:
  static comm::WorkPtr unused() { fail(ErrorKind::internal, "stages only exchange messages"); }

  Record& record_;
  int rank_;
  int size_;
  GroupId id_;
  std::string name_ = "pp";
  int splits_ = 0;
};

/// Runs some updates of one rank.
Record record_of(const pipeline::Schedule& schedule, int rank, int updates) {
  using enum parallel::StageMessage;
  Record record;
  RecordedGroup pp(record, rank, schedule.placement.ranks);
  parallel::StageP2P links(pp, schedule.placement);
  const at::Tensor result = at::zeros({1});
  for (int update = 0; update < updates; ++update) {
    links.begin(schedule, [](int) { return at::empty({1}); });
    for (const pipeline::StageAction& one : schedule.lists[static_cast<std::size_t>(rank)]) {
      const bool forward = one.kind == pipeline::ActionKind::forward;
      if (!forward && !pipeline::gives_input_grad(one.kind)) continue;
      const parallel::StageMessage kind = forward ? activations : gradients;
      (void)links.receive(kind, one.stage, one.micro_batch);
      links.send(kind, one.stage, one.micro_batch, result);
      links.poll();
    }
    links.finish();
  }
  return record;
}

/// The devices of all ranks. With `launch_order`, an operation starts after all operations that were
/// enqueued before it on its rank have started, as with NCCL_LAUNCH_ORDER_IMPLICIT = 1.
class Devices {
 public:
  Devices(std::vector<Record> records, bool launch_order)
      : records_(std::move(records)), launch_order_(launch_order) {
    for (const Record& record : records_) states_.emplace_back(record.size());
  }

  /// Returns true if all entries of all ranks complete.
  bool run() {
    while (start_some()) {
    }
    for (const auto& states : states_) {
      for (const State& state : states)
        if (!state.done) return false;
    }
    return true;
  }

 private:
  struct State {
    bool started = false;
    bool done = false;
  };

  bool start_some() {
    bool changed = false;
    // Messages are named by their group and their number in the group.
    std::map<std::pair<GroupId, int>, State*> sends;
    std::map<std::pair<GroupId, int>, State*> receives;
    for (std::size_t rank = 0; rank < records_.size(); ++rank)
      changed |= start_on(rank, sends, receives);
    for (auto& [message, send] : sends) {
      State& receive = *receives.at(message);
      if (!send->started || !receive.started || send->done) continue;
      send->done = receive.done = true;
      changed = true;
    }
    return changed;
  }

  template <class Messages>
  bool start_on(std::size_t rank, Messages& sends, Messages& receives) {
    bool changed = false;
    bool computes = true;     // all earlier waits are over
    bool all_started = true;  // all earlier operations
    std::map<GroupId, int> count;
    std::map<GroupId, bool> is_free;
    for (std::size_t i = 0; i < records_[rank].size(); ++i) {
      const Enqueued& entry = records_[rank][i];
      State& state = states_[rank][i];
      if (entry.kind == Enqueued::Kind::wait) {
        const bool over = computes && states_[rank][entry.target].done;
        changed |= over && !state.done;
        state.done = over;
        computes = over;
        continue;
      }
      const bool lane = is_free.try_emplace(entry.group, true).first->second;
      const bool starts = computes && lane && (all_started || !launch_order_);
      changed |= starts && !state.started;
      state.started |= starts;
      all_started &= state.started;
      is_free[entry.group] = state.done;
      auto& messages = entry.kind == Enqueued::Kind::send ? sends : receives;
      messages[{entry.group, count[entry.group]++}] = &state;
    }
    return changed;
  }

  std::vector<Record> records_;
  std::vector<std::vector<State>> states_;
  bool launch_order_;
};

bool ends(std::string_view name, const pipeline::Shape& shape, bool launch_order) {
  const pipeline::Schedule schedule = pipeline::named_schedule(name, shape);
  std::vector<Record> records;
  for (int rank = 0; rank < shape.ranks; ++rank) records.push_back(record_of(schedule, rank, 2));
  return Devices(std::move(records), launch_order).run();
}

TEST(StageP2P, NoScheduleDeadlocksOnDevicesWithoutLaunchOrder) {
  for (const std::string_view name : pipeline::kSchedules) {
    for (const int ranks : {2, 3, 4}) {
      for (const int micro_batches : {1, 2, 3, 8}) {
        const int stages = pipeline::mistake_in_stages(name, 2).empty() ? 2 : 1;
        const pipeline::Shape shape{ranks, stages, micro_batches};
        EXPECT_TRUE(ends(name, shape, /*launch_order=*/false))
            << name << ", " << ranks << " ranks, " << micro_batches << " micro-batches";
      }
    }
  }
}

// Therefore CommOptions::launch_order is false with pipeline parallelism.
TEST(StageP2P, SomeSchedulesDeadlockInTheLaunchOrder) {
  EXPECT_FALSE(ends("interleaved", {2, 2, 4}, /*launch_order=*/true));
  EXPECT_FALSE(ends("dualpipe-v", {2, 2, 4}, /*launch_order=*/true));
}

}  // namespace
}  // namespace trireme::testing
