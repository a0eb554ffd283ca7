#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "core/timer.hpp"
#include "parallel/mesh.hpp"
#include "parallel/param_registry.hpp"

namespace trireme::parallel {

/// Communication times of one update, in seconds. The first two count from begin().
struct OverlapTimes {
  double first_launch_s = 0;  // launch of the first gradients
  double last_ready_s = 0;    // completion of the last gradient
  double comm_s = 0;          // total time with at least one collective in flight
  double exposed_s = 0;       // part of comm_s after the end of backward, when the rank only waits

  /// Returns the communication time that overlapped with backward.
  [[nodiscard]] double hidden_s() const { return std::max(0.0, comm_s - exposed_s); }
};

/// The pending gradient collectives of one update, oldest first.
class InFlight {
 public:
  void begin();

  /// Records that a gradient is complete.
  void note_ready() { times_.last_ready_s = timer_.seconds(); }

  /// Adds a collective. `then` runs when the collective is complete and the functions of all
  /// earlier collectives have run.
  void add(
      comm::WorkPtr work, std::function<void()> then = [] {});

  /// Makes progress without waiting.
  void poll();
  /// Waits until at most `count` collectives are pending.
  void wait_for_all_but(std::size_t count);
  /// Waits for all collectives after the end of backward.
  void finish();

  [[nodiscard]] const OverlapTimes& times() const { return times_; }

 private:
  struct Item {
    std::function<void()> then;  // this function owns the tensors of the work
    comm::WorkPtr work;          // its destructor runs first and waits for the work
  };

  void retire_oldest();

  std::deque<Item> items_;
  bool none_left_ = true;  // since begin()
  double busy_since_s_ = 0;
  Timer timer_;
  OverlapTimes times_;
};

/// Sums gradients over the data ranks while backward is still running. Every rank receives the sums
/// of its part. Call begin() before the backward passes of an update, ready() from the registry's
/// ready event, and finish() at the end; it waits for all sums. The order of the collectives
/// depends only on the registry and the options, not on timing. Therefore all ranks call the same
/// collectives in the same order. Throws Error(comm) if a collective fails; gradients are then
/// undefined.
class GradReduction {
 public:
  virtual ~GradReduction() = default;

  virtual void begin() = 0;
  virtual void ready(ParamId id) = 0;
  virtual void finish() = 0;

  [[nodiscard]] const OverlapTimes& times() const { return in_flight_.times(); }

 protected:
  InFlight in_flight_;
};

/// Creates the reduction for the mesh's ZeRO stage.
std::unique_ptr<GradReduction> make_grad_reduction(ParamRegistry& registry, const Mesh& mesh);

/// Sums over all replicas in three stages: reduce-scatter on each node, all-reduce of each rank's
/// part across nodes, all-gather on each node. With m nodes of n ranks, a rank sends
/// 2 (m - 1) / (m n) of a tensor across nodes, 1 / n of a plain all-reduce.
///
/// The next stage of a tensor starts when a later tensor is added, or in finish(). Before a stage
/// starts, its previous stage must be complete. Timing does not change the order of the calls, so
/// it is the same on all ranks.
class HierarchicalSum {
 public:
  /// Both arguments must outlive this object.
  HierarchicalSum(const NodeLevels& levels, InFlight& in_flight)
      : node_(*levels.node), across_(*levels.across), in_flight_(in_flight) {}

  /// Starts a new update. Discards tensors of an update that did not finish.
  void begin() {
    scattered_.reset();
    summed_.reset();
  }

  /// Sums `values` in place; the number of ranks on a node must divide their count.
  void add(const at::Tensor& values);

  /// Starts all remaining stages.
  void finish();

 private:
  void advance();

  comm::Communicator& node_;
  comm::Communicator& across_;
  InFlight& in_flight_;
  at::Tensor scattered_;  // tensor in the first stage
  at::Tensor summed_;     // tensor in the second stage
};

/// The groups of ranks with the same weights, without ZeRO.
struct ReplicaGroups {
  comm::Communicator& dense;
  comm::Communicator& experts;  // for expert units in a separate grid
};

/// Without ZeRO: all-reduces buckets in an update's last backward pass.
///
/// A bucket is a range of the buffer of all trainable units. The first bucket is at the end of the
/// buffer, because backward reaches the last layers first. Buckets have a fixed size, so a large
/// parameter is in several buckets. The first bucket is small, so that communication starts early.
/// Experts in a separate grid have their own buckets. Source: Li et al., "PyTorch Distributed:
/// experiences on accelerating data parallel training", VLDB 2020, section 3.2.
class BucketAllReduce final : public GradReduction {
 public:
  /// `bucket_bytes` 0: one bucket. `levels`: hierarchical sums for the dense group; may be null.
  BucketAllReduce(ParamRegistry& registry, const ReplicaGroups& groups, std::int64_t bucket_bytes,
                  const NodeLevels* levels = nullptr);

  void begin() override;
  void ready(ParamId id) override;
  void finish() override;

 private:
  struct Bucket {
    IndexRange elements;     // range in the buffer of all trainable units
    std::size_t params = 0;  // number of parameters in the bucket
    std::size_t missing = 0;
  };

  /// The buckets of one group, in launch order.
  struct Lane {
    comm::Communicator& group;
    std::vector<Bucket> buckets = {};
    std::size_t next_launch = 0;
  };

  /// The buckets of one parameter.
  struct Place {
    std::size_t lane = 0;
    IndexRange buckets;
  };

  static Lane cut(comm::Communicator& group, const IndexRange& elements, std::int64_t first,
                  std::int64_t others);
  void launch_complete(Lane& lane);

  ParamRegistry& registry_;
  std::optional<HierarchicalSum> hierarchical_;  // for the first lane
  std::vector<Lane> lanes_;
  std::vector<Place> places_;  // by parameter
};

/// Reduces a unit when backward has completed all its gradients.
class UnitReduction : public GradReduction {
 public:
  UnitReduction(ParamRegistry& registry, const Mesh& mesh);

  void begin() override;
  void ready(ParamId id) override;

 protected:
  /// Called when the gradients of a unit are complete: once per update, or in each backward pass if
  /// UnitGrads::apart() is true.
  virtual void launch(std::size_t unit) = 0;

  /// Adds the pending collective `work`, which sums a unit from UnitGrads::take(); `then` uses the
  /// result. At most one such unit waits for its sums while backward fills the next one. This
  /// limits the memory.
  void add_taken(comm::WorkPtr work, std::int64_t bytes, std::function<void()> then);
  void wait_for_taken();

  ParamRegistry& registry_;
  const Mesh& mesh_;

 private:
  std::vector<std::size_t> missing_;  // parameters without gradient, by unit
  std::int64_t waiting_bytes_ = 0;    // bytes of the unit in flight
};

/// Reduce-scatters each unit, for ZeRO. ZeRO-1 does this in the last backward pass; ZeRO-2 and 3
/// do it in every backward pass, because they do not keep whole gradients. At the end, an
/// all-reduce sums the results of the replicas.
class UnitReduceScatter final : public UnitReduction {
 public:
  using UnitReduction::UnitReduction;

  void finish() override;

 private:
  void launch(std::size_t unit) override;
};

/// Reproducible sums. The gradient of every micro-batch is computed separately. The rank that owns
/// a share adds the gradients one after another, in the order of the global micro-batch numbers, as
/// one process does. The micro-batches of one backward pass have consecutive numbers, and later
/// passes have higher numbers (DataLoader). Therefore the sums are bit for bit equal for every
/// number of data ranks, every ZeRO stage and every number of gradient-accumulation steps.
class UnitOrderedSum final : public UnitReduction {
 public:
  using UnitReduction::UnitReduction;

  void finish() override;

 private:
  void launch(std::size_t unit) override;
};

}  // namespace trireme::parallel
