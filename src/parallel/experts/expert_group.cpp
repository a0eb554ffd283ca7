#include "parallel/experts/expert_group.hpp"

namespace trireme::parallel {

ExpertGroup::ExpertGroup(const Mesh& mesh)
    : group_(&mesh.group(Axis::ep)),
      parts_(mesh.size(Axis::tp) / mesh.size(Axis::etp)),
      part_(mesh.rank(Axis::tp) / mesh.size(Axis::etp)) {}

IndexRange ExpertGroup::held(std::int64_t num_experts, int rank) const {
  return split_range(num_experts, {}, size(), rank);
}

IndexRange ExpertGroup::held(std::int64_t num_experts) const {
  return held(num_experts, group_ == nullptr ? 0 : group_->rank());
}

IndexRange ExpertGroup::sent(std::int64_t count) const {
  return split_range(count, {}, parts_, part_);
}

}  // namespace trireme::parallel
