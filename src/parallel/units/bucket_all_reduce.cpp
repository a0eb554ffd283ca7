#include <algorithm>

#include "core/error.hpp"
#include "parallel/collectives.hpp"
#include "parallel/units/grad_reduction.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kFirstBytes = 1024 * 1024;
constexpr std::int64_t kBucketAlignment = 64;  // elements

}  // namespace

BucketAllReduce::BucketAllReduce(ParamRegistry& registry, Communicator& group,
                                 std::int64_t bucket_bytes, const NodeLevels* levels)
    : registry_(registry), group_(group) {
  if (levels != nullptr) hierarchical_.emplace(*levels, in_flight_);
  const std::int64_t alignment = kBucketAlignment * (levels != nullptr ? levels->node->size() : 1);
  const UnitLayout& layout = registry.layout();
  const auto element_bytes = static_cast<std::int64_t>(at::elementSize(registry.dtypes().main));
  for (std::int64_t end = layout.trained_count(); end > 0;) {
    const std::int64_t bytes =
        buckets_.empty() ? std::min(kFirstBytes, bucket_bytes) : bucket_bytes;
    const std::int64_t elements =
        std::max(alignment, bytes / element_bytes / alignment * alignment);
    const std::int64_t begin = bucket_bytes == 0 ? 0 : std::max<std::int64_t>(0, end - elements);
    buckets_.push_back({{begin, end}});
    end = begin;
  }
  for (ParamId id = 0; id < registry.size(); ++id) {
    const PlacedParam& param = layout.param(id);
    const Unit& unit = layout.units()[param.unit];
    if (unit.frozen) {
      buckets_of_.emplace_back();
      continue;
    }
    const std::int64_t begin = unit.trained_begin + param.begin;
    IndexRange in{static_cast<std::int64_t>(buckets_.size()), 0};
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const IndexRange& elements = buckets_[b].elements;
      if (elements.end <= begin || begin + param.count <= elements.begin) continue;
      in = {std::min(in.begin, static_cast<std::int64_t>(b)), static_cast<std::int64_t>(b) + 1};
      ++buckets_[b].params;
    }
    buckets_of_.push_back(in);
  }
}

void BucketAllReduce::begin() {
  for (Bucket& bucket : buckets_) bucket.missing = bucket.params;
  next_launch_ = 0;
  if (hierarchical_) hierarchical_->begin();
  in_flight_.begin();
}

void BucketAllReduce::ready(ParamId id) {
  for (std::int64_t b = buckets_of_[id].begin; b < buckets_of_[id].end; ++b)
    --buckets_[static_cast<std::size_t>(b)].missing;
  in_flight_.note_ready();
  launch_complete();
  in_flight_.poll();
}

void BucketAllReduce::launch_complete() {
  for (; next_launch_ < buckets_.size() && buckets_[next_launch_].missing == 0; ++next_launch_) {
    const IndexRange& elements = buckets_[next_launch_].elements;
    const at::Tensor grads = registry_.grads().range(elements.begin, elements.count());
    if (hierarchical_) {
      hierarchical_->add(grads);
    } else {
      in_flight_.add(
          all_reduce(group_, grads, ReduceOp::sum, formatted("grads bucket {}", next_launch_)));
    }
  }
}

void BucketAllReduce::finish() {
  TRIREME_ASSERT(next_launch_ == buckets_.size());
  if (hierarchical_) hierarchical_->finish();
  in_flight_.finish();
}

}  // namespace trireme
