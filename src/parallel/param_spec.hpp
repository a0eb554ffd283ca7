#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh.hpp"

namespace trireme::parallel {

using ParamId = std::size_t;

/// `count` neighboring parameters used as one matrix with stacked rows (1: a single parameter).
struct WeightRef {
  ParamId first = 0;
  std::size_t count = 1;
};

/// The distribution of initial values. A value depends on (seed, name, global index) only.
struct InitLaw {
  enum class Kind { normal, uniform, ones, zeros } kind = Kind::normal;
  double scale = 0.02;  // normal: standard deviation; uniform: values in [-scale, scale)
};

/// A half-open range of indices.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t count() const { return end - begin; }

  bool operator==(const IndexRange&) const = default;
};

/// The split of a dimension over the ranks of an axis, into groups of `grain` indices (the rows of
/// a head) that need not divide evenly.
struct DimSplit {
  int dim = 0;
  Axis axis = Axis::tp;
  std::int64_t grain = 1;
  /// 0: the groups are divided among the ranks. Otherwise the ranks divide this many readers (query
  /// heads), readers / groups of them for each group. A rank holds every group that its readers
  /// read, so several ranks may hold the same group.
  std::int64_t readers = 0;
};

/// Returns the range of a dimension of `size` that part `part` of `parts` holds. Ranges ascend with
/// `part`, also for parts that hold nothing.
IndexRange split_range(std::int64_t size, const DimSplit& split, int parts, int part);

/// The complete description of one parameter; there is no second list.
struct ParamSpec {
  std::string name;                      // Hugging Face name
  std::vector<std::int64_t> shape = {};  // global, logical
  InitLaw init = {};
  std::optional<DimSplit> split = {};  // if not set, every tp rank holds the whole parameter
  bool decay = true;                   // weight decay applies
  int uses = 1;                        // gradients that one backward pass adds
  bool partial = false;  // not split, and each tp rank computes a part of its gradient
  /// Parameter of experts: dim 0 is split over ep. If experts have a separate grid (Mesh), `split`
  /// refers to etp, and the parameter is in the expert unit of its block.
  bool of_experts = false;
  /// Has only weights for computation: no master weights, gradient or optimizer state.
  bool frozen = false;
  /// A tied table that the first and the last pipeline stage hold on two ranks. It has its own
  /// unit, split equally on both ranks, and the first rank owns it.
  enum class Copies { none, first_of_two, second_of_two } copies = Copies::none;
  /// If above 0, no optimizer updates the parameter and no norm counts it. Each update moves every
  /// element by this amount against the sign of its gradient (a router's bias).
  double sign_rate = 0;
  /// Directly follows the previous parameter, so that both are rows of one matrix.
  bool fuse_with_previous = false;
};

}  // namespace trireme::parallel
