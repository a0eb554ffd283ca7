#pragma once
#include "parallel/mesh.hpp"
#include "parallel/param_spec.hpp"

namespace trireme::parallel {

/// The expert-parallel group that a layer uses. It defines which experts each rank holds and which
/// tokens this rank sends to experts. Without a mesh, or if experts are split like other weights,
/// this rank holds all experts.
class ExpertGroup {
 public:
  ExpertGroup() = default;

  /// `mesh` must outlive this object.
  explicit ExpertGroup(const Mesh& mesh);

  /// Returns the number of ranks over which experts are split.
  [[nodiscard]] int size() const { return group_ == nullptr ? 1 : group_->size(); }

  /// Returns the ep communicator. Call it only if size() > 1.
  [[nodiscard]] comm::Communicator& group() const { return *group_; }

  /// Return the range of experts on `rank` of the group, or on this rank.
  [[nodiscard]] IndexRange held(std::int64_t num_experts, int rank) const;
  [[nodiscard]] IndexRange held(std::int64_t num_experts) const;

  /// Returns the range of tokens that this rank sends, out of `count` tokens that every tp rank
  /// has. If the tp ranks do not split the same experts, the range is this rank's part; otherwise
  /// it is all tokens.
  [[nodiscard]] IndexRange sent(std::int64_t count) const;

 private:
  comm::Communicator* group_ = nullptr;
  int parts_ = 1;  // number of parts into which the tp ranks split their tokens
  int part_ = 0;
};

}  // namespace trireme::parallel
