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

/// The distribution of initial values. A value depends on (seed, name, global index) only. `ones`
/// gives `scale` itself.
struct InitDistribution {
  enum class Kind { normal, uniform, ones, zeros } kind = Kind::normal;
  double scale = 0.02;  // normal: standard deviation; uniform: values in center + [-scale, scale)
  double center = 0;    // uniform only
};

/// A half-open range of indices.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t count() const { return end - begin; }

  bool operator==(const IndexRange&) const = default;
};

/// Defines how the ranks of an axis split a dimension. Groups of `grain` indices (the rows of a
/// head) stay together. The number of groups need not be divisible by the number of ranks.
struct DimSplit {
  int dim = 0;
  Axis axis = Axis::tp;
  std::int64_t grain = 1;
  /// If 0, the ranks split the groups. Otherwise the ranks split this number of readers (query
  /// heads), and `readers` / number of groups of them read each group (key head). A rank holds
  /// every group that its readers read, so several ranks may hold the same group.
  std::int64_t readers = 0;
};

/// Returns the range of a dimension of `size` that part `part` of `parts` holds. The ranges ascend
/// with `part`; a part that holds nothing has an empty range.
IndexRange split_range(std::int64_t size, const DimSplit& split, int parts, int part);

/// The complete description of one parameter. No other code repeats this information.
struct ParamSpec {
  std::string name;                      // Hugging Face name
  std::vector<std::int64_t> shape = {};  // global, logical
  InitDistribution init = {};
  std::optional<DimSplit> split = {};  // if not set, every tp rank holds the whole parameter
  bool decay = true;                   // weight decay applies
  int uses = 1;                        // number of gradients that one backward pass adds
  bool partial = false;  // not split, and each tp rank computes a part of its gradient
  /// Parameter of experts: dim 0 is split over ep. If experts have a separate grid (Mesh), `split`
  /// refers to etp, and the parameter is in the expert unit of its block.
  bool of_experts = false;
  /// The parameter has only compute weights: no master weights, gradient or optimizer state.
  bool frozen = false;
  /// A tied embedding table. If the first and the last pipeline stage are on different ranks, both
  /// hold a copy. The table has its own unit, which is split equally on both ranks, and the rank of
  /// the first stage owns it.
  enum class Copies { none, first_of_two, second_of_two } copies = Copies::none;
  /// An optimizer of whole matrices (Muon) updates tables with rates of their own. A tied table is
  /// an embedding; `value` is an embedding that is added to the values of attention.
  enum class Table { none, embedding, head, value } table = Table::none;
  /// If above 0, the optimizer does not update the parameter and the gradient norm does not count
  /// it. Instead, each update moves every element by this amount against the sign of its gradient
  /// (for the bias of a router).
  double sign_rate = 0;
  /// Logits l of this table as output matrix become c * tanh(l / c) with this c; 0: unchanged.
  double softcap = 0;
  /// The parameter directly follows the previous one in memory, so that both form one matrix with
  /// stacked rows.
  bool fuse_with_previous = false;
};

}  // namespace trireme::parallel
