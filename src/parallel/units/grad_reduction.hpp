#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/param_registry.hpp"
#include "parallel/units/hierarchical_sum.hpp"
#include "parallel/units/in_flight.hpp"

namespace trireme {

/// Sums gradients over the data ranks while backward is still running, so that every rank has the
/// sums of its part. begin() before an update's backward passes; ready() is the registry's event;
/// finish() waits for all. What leaves when is a function of the registry and the options, never of
/// timing: all ranks make the same calls. Throws Error(comm) if a collective fails; gradients are
/// then undefined.
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

/// The one that the mesh's ZeRO stage asks for.
std::unique_ptr<GradReduction> make_grad_reduction(ParamRegistry& registry, const Mesh& mesh);

/// The ranks that hold the same, without ZeRO.
struct ReplicaGroups {
  Communicator& dense;
  Communicator& experts;  // of units of experts in their own grid
};

/// Without ZeRO: all-reduce of buckets, after an update's last backward pass has filled them.
///
/// A bucket is a range of the buffer of all trained units, cut from its end (backward reaches the last
/// layers first), wherever its size is full: large parameters lie in several. The first one is
/// small, so that communication starts early. Experts in their own grid have buckets of their own. Source: Li et al., "PyTorch Distributed: experiences
/// on accelerating data parallel training", VLDB 2020, section 3.2.
class BucketAllReduce final : public GradReduction {
 public:
  /// `bucket_bytes` 0: one bucket. `levels`: of the dense group's ranks, for sums inside a node
  /// first; may be null.
  BucketAllReduce(ParamRegistry& registry, const ReplicaGroups& groups, std::int64_t bucket_bytes,
                  const NodeLevels* levels = nullptr);

  void begin() override;
  void ready(ParamId id) override;
  void finish() override;

 private:
  struct Bucket {
    IndexRange elements;     // of the buffer of all trained units
    std::size_t params = 0;  // that lie in it
    std::size_t missing = 0;
  };

  /// The buckets of one group, in launch order.
  struct Lane {
    Communicator& group;
    std::vector<Bucket> buckets = {};
    std::size_t next_launch = 0;
  };

  /// Of one parameter.
  struct Place {
    std::size_t lane = 0;
    IndexRange buckets;
  };

  static Lane cut(Communicator& group, const IndexRange& elements, std::int64_t first,
                  std::int64_t others);
  void launch_complete(Lane& lane);

  ParamRegistry& registry_;
  std::optional<HierarchicalSum> hierarchical_;  // of the first lane
  std::vector<Lane> lanes_;
  std::vector<Place> places_;  // by parameter
};

/// Units that leave whole, when backward has left them.
class UnitReduction : public GradReduction {
 public:
  UnitReduction(ParamRegistry& registry, const Mesh& mesh);

  void begin() override;
  void ready(ParamId id) override;

 protected:
  /// All gradients of the unit are complete: of the update, or where they are sharded, of one
  /// backward pass.
  virtual void launch(std::size_t unit) = 0;

  /// `work` sums a whole unit that was taken; `then` uses what came. At most one unit waits for its
  /// sums beside the one that backward fills: what a rank has room for, whatever the timing.
  void add_taken(WorkPtr work, std::int64_t bytes, std::function<void()> then);
  void wait_for_taken();

  ParamRegistry& registry_;
  const Mesh& mesh_;

 private:
  std::vector<std::size_t> missing_;  // parameters, by unit
  std::int64_t waiting_bytes_ = 0;    // of the unit in flight
};

/// ZeRO: reduce-scatter of each unit, every backward pass where whole gradients are not kept
/// (ZeRO-2 and 3), else the last one. The sums of several copies are added up at the end.
class UnitReduceScatter final : public UnitReduction {
 public:
  using UnitReduction::UnitReduction;

  void finish() override;

 private:
  void launch(std::size_t unit) override;
};

/// Reproducible sums: the gradient of every micro-batch is formed alone, and the rank that answers
/// for a share adds them in the order of the micro-batches' global numbers, one after another, as
/// one process does. The micro-batches of a pass are neighbours in that order (DataLoader), those
/// of a later pass come later. The sums are the same bits for every number of data ranks, ZeRO
/// stage and accumulation.
class UnitOrderedSum final : public UnitReduction {
 public:
  using UnitReduction::UnitReduction;

  void finish() override;

 private:
  void launch(std::size_t unit) override;
};

}  // namespace trireme
