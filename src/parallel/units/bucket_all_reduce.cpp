#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "parallel/collectives.hpp"
#include "parallel/units/grad_reduction.hpp"

namespace trireme::parallel {
namespace {

constexpr std::int64_t kFirstBytes = 1024 * 1024;
constexpr std::int64_t kBucketAlignment = 64;  // elements

at::Tensor own_part(const at::Tensor& values, const comm::Communicator& node) {
  const std::int64_t size = values.numel() / node.size();
  return values.narrow(0, size * node.rank(), size);
}

}  // namespace

void HierarchicalSum::add(const at::Tensor& values) {
  advance();
  in_flight_.add(reduce_scatter(node_, values, own_part(values, node_), "grads in node"));
  scattered_ = values;
}

void HierarchicalSum::finish() {
  while (scattered_.defined() || summed_.defined()) advance();
}

void HierarchicalSum::advance() {
  in_flight_.wait_for_all_but(0);
  if (summed_.defined())
    in_flight_.add(all_gather(node_, own_part(summed_, node_), summed_, "grads in node"));
  if (scattered_.defined())
    in_flight_.add(all_reduce(across_, own_part(scattered_, node_), comm::ReduceOp::sum,
                              "grads across nodes"));
  summed_ = std::exchange(scattered_, {});
}

BucketAllReduce::BucketAllReduce(ParamRegistry& registry, const ReplicaGroups& groups,
                                 std::int64_t bucket_bytes, const NodeLevels* levels)
    : registry_(registry) {
  if (levels != nullptr) hierarchical_.emplace(*levels, in_flight_);
  const UnitLayout& layout = registry.layout();
  const auto element_bytes = static_cast<std::int64_t>(at::elementSize(registry.dtypes().main));
  // Returns a size in elements, a multiple of `alignment`; 0 means all.
  const auto size = [&](std::int64_t bytes, std::int64_t alignment) {
    if (bucket_bytes == 0) return std::int64_t{0};
    return std::max(alignment, bytes / element_bytes / alignment * alignment);
  };
  const auto add_lane = [&](comm::Communicator& group, const IndexRange& elements,
                            std::int64_t ranks) {
    const std::int64_t alignment = kBucketAlignment * ranks;
    lanes_.push_back(cut(group, elements, size(std::min(kFirstBytes, bucket_bytes), alignment),
                         size(bucket_bytes, alignment)));
  };
  const IndexRange experts = layout.trainable_experts();
  add_lane(groups.dense, {0, experts.begin}, levels != nullptr ? levels->node->size() : 1);
  if (experts.count() > 0) add_lane(groups.experts, experts, 1);
  for (ParamId id = 0; id < registry.size(); ++id) {
    const PlacedParam& param = layout.param(id);
    const Unit& unit = layout.units()[param.unit];
    Place& place = places_.emplace_back();
    if (unit.frozen) continue;
    place.lane = unit.experts ? 1 : 0;
    std::vector<Bucket>& buckets = lanes_[place.lane].buckets;
    const std::int64_t begin = unit.trainable_begin + param.begin;
    place.buckets = {static_cast<std::int64_t>(buckets.size()), 0};
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const IndexRange& elements = buckets[b].elements;
      if (elements.end <= begin || begin + param.count <= elements.begin) continue;
      place.buckets = {std::min(place.buckets.begin, static_cast<std::int64_t>(b)),
                       static_cast<std::int64_t>(b) + 1};
      ++buckets[b].params;
    }
  }
}

BucketAllReduce::Lane BucketAllReduce::cut(comm::Communicator& group, const IndexRange& elements,
                                           std::int64_t first, std::int64_t others) {
  Lane lane{group};
  for (std::int64_t end = elements.end; end > elements.begin;) {
    const std::int64_t size = lane.buckets.empty() ? first : others;
    const std::int64_t begin = size == 0 ? elements.begin : std::max(elements.begin, end - size);
    lane.buckets.push_back({{begin, end}});
    end = begin;
  }
  return lane;
}

void BucketAllReduce::begin() {
  for (Lane& lane : lanes_) {
    for (Bucket& bucket : lane.buckets) bucket.missing = bucket.params;
    lane.next_launch = 0;
  }
  if (hierarchical_) hierarchical_->begin();
  in_flight_.begin();
}

void BucketAllReduce::ready(ParamId id) {
  const Place& place = places_[id];
  Lane& lane = lanes_[place.lane];
  for (std::int64_t b = place.buckets.begin; b < place.buckets.end; ++b)
    --lane.buckets[static_cast<std::size_t>(b)].missing;
  in_flight_.note_ready();
  launch_complete(lane);
  in_flight_.poll();
}

void BucketAllReduce::launch_complete(Lane& lane) {
  for (std::size_t& next = lane.next_launch;
       next < lane.buckets.size() && lane.buckets[next].missing == 0; ++next) {
    const IndexRange& elements = lane.buckets[next].elements;
    const at::Tensor grads = registry_.grads().range(elements.begin, elements.count());
    if (hierarchical_ && &lane == &lanes_.front()) {
      hierarchical_->add(grads);
    } else {
      in_flight_.add(
          all_reduce(lane.group, grads, comm::ReduceOp::sum, formatted("grads bucket {}", next)));
    }
  }
}

void BucketAllReduce::finish() {
  for (const Lane& lane : lanes_) TRIREME_ASSERT(lane.next_launch == lane.buckets.size());
  if (hierarchical_) hierarchical_->finish();
  in_flight_.finish();
}

}  // namespace trireme::parallel
