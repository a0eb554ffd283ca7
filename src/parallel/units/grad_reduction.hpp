#pragma once
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

/// Without ZeRO: all-reduce of buckets, after an update's last backward pass has filled them.
///
/// A bucket is a range of the buffer of all units, cut from its end (backward reaches the last
/// layers first), wherever its size is full: large parameters lie in several. The first one is
/// small, so that communication starts early. Source: Li et al., "PyTorch Distributed: experiences
/// on accelerating data parallel training", VLDB 2020, section 3.2.
class BucketAllReduce final : public GradReduction {
 public:
  /// `bucket_bytes` 0: one bucket. `levels`: of the group's ranks, for sums inside a node first;
  /// may be null.
  BucketAllReduce(ParamRegistry& registry, Communicator& group, std::int64_t bucket_bytes,
                  const NodeLevels* levels = nullptr);

  void begin() override;
  void ready(ParamId id) override;
  void finish() override;

 private:
  struct Bucket {
    IndexRange elements;     // of the buffer of all units
    std::size_t params = 0;  // that lie in it
    std::size_t missing = 0;
  };

  void launch_complete();

  ParamRegistry& registry_;
  Communicator& group_;
  std::optional<HierarchicalSum> hierarchical_;
  std::vector<Bucket> buckets_;         // in launch order
  std::vector<IndexRange> buckets_of_;  // by parameter
  std::size_t next_launch_ = 0;
};

/// ZeRO: reduce-scatter of each unit, when backward has left it: every backward pass where whole
/// gradients are not kept (ZeRO-2 and 3), else the last one. The sums of several copies are added
/// up at the end.
class UnitReduceScatter final : public GradReduction {
 public:
  UnitReduceScatter(ParamRegistry& registry, const Mesh& mesh);

  void begin() override;
  void ready(ParamId id) override;
  void finish() override;

 private:
  void launch(std::size_t unit);

  ParamRegistry& registry_;
  Communicator& shard_;
  Communicator& replica_;
  std::vector<std::size_t> missing_;  // parameters, by unit
};

}  // namespace trireme
