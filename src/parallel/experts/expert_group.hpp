#pragma once
#include "parallel/mesh.hpp"
#include "parallel/param_spec.hpp"

namespace trireme {

/// Expert parallelism as a layer sees it: which experts lie on which rank, and which tokens this rank
/// sends to them. Without a mesh, and where experts are cut as other weights are, all lie here.
class ExpertGroup {
 public:
  ExpertGroup() = default;

  /// `mesh` must outlive this.
  explicit ExpertGroup(const Mesh& mesh);

  /// Ranks that experts are dealt over.
  [[nodiscard]] int size() const { return group_ == nullptr ? 1 : group_->size(); }

  /// Of more than one rank.
  [[nodiscard]] Communicator& group() const { return *group_; }

  /// Of `num_experts` those of one rank of the group; of this one.
  [[nodiscard]] IndexRange held(std::int64_t num_experts, int rank) const;
  [[nodiscard]] IndexRange held(std::int64_t num_experts) const;

  /// Of `count` tokens that every rank of tp has, those that this one sends: all, or where ranks of tp
  /// are no parts of the same experts, its part.
  [[nodiscard]] IndexRange sent(std::int64_t count) const;

 private:
  Communicator* group_ = nullptr;
  int parts_ = 1;  // that the ranks of tp deal their tokens in
  int part_ = 0;
};

}  // namespace trireme
