#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh.hpp"

namespace trireme {

using ParamId = std::size_t;

/// `count` neighbouring parameters used as one matrix, their rows one below another (count 1: a
/// parameter alone).
struct WeightRef {
  ParamId first = 0;
  std::size_t count = 1;
};

/// Law of initial values; the value of an element depends on (seed, name, global flat index) only.
struct InitLaw {
  enum class Kind { normal, uniform, ones, zeros } kind = Kind::normal;
  double scale = 0.02;  // normal: standard deviation; uniform: values in [-scale, scale)
};

/// Half-open.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t count() const { return end - begin; }

  bool operator==(const IndexRange&) const = default;
};

/// How a dimension is cut over the ranks of an axis: into pieces of `grain` (the rows of a head),
/// which need not divide evenly.
struct DimSplit {
  int dim = 0;
  Axis axis = Axis::tp;
  std::int64_t grain = 1;
  /// 0: the pieces are dealt. Else the axis deals this many readers of the pieces (query heads),
  /// readers / pieces of them to a piece, and a rank holds every piece that its readers read: some
  /// pieces lie on several ranks.
  std::int64_t readers = 0;
};

/// What part `part` of `parts` holds of a dimension of `size`. Rises with `part`, also for parts
/// that hold nothing.
IndexRange split_range(std::int64_t size, const DimSplit& split, int parts, int part);

/// Everything the project knows about one parameter; there is no second list.
struct ParamSpec {
  std::string name;                      // Hugging Face name
  std::vector<std::int64_t> shape = {};  // global, logical
  InitLaw init = {};
  std::optional<DimSplit> split = {};  // none: every rank of tp holds all of it
  bool decay = true;                   // weight decay applies
  int uses = 1;                        // gradients that one backward pass adds
  bool partial = false;  // not split, and each rank of tp forms a part of its gradient
  /// Of experts, its dim 0: dealt over ep. Where experts lie in a grid of their own (Mesh), `split`
  /// is over etp and it lies in a unit of its block's experts.
  bool of_experts = false;
  /// Has the weights that the model computes with and nothing else: no main copy, gradient or
  /// optimizer state.
  bool frozen = false;
  /// Held by the first and the last stage of a pipeline, which are on two ranks: a tied table. It
  /// lies in a unit of its own, alike on both, and the first answers for it.
  enum class Copies { none, first_of_two, second_of_two } copies = Copies::none;
  /// Above 0: no optimizer updates it and no norm counts it; each update moves every element by so much
  /// against the sign of its gradient (a router's bias).
  double sign_rate = 0;
  /// Lies directly behind the previous one, so that both are rows of one matrix.
  bool fuse_with_previous = false;
};

}  // namespace trireme
