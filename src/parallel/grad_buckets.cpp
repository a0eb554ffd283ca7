#include "parallel/grad_buckets.hpp"

#include "core/error.hpp"
#include "parallel/torch_bridge.hpp"

namespace trireme {

GradBuckets::GradBuckets(ParamRegistry& registry, Communicator& group, double bucket_mib)
    : registry_(registry), group_(group), bucket_of_(registry.size()) {
  const double limit_bytes = bucket_mib * 1024 * 1024;
  const auto element_bytes = static_cast<double>(registry.flat_grad().element_size());
  ParamId end = registry.size();
  double bytes = 0;
  for (ParamId id = registry.size(); id-- > 0;) {
    bytes += static_cast<double>(registry.flat_end(id) - registry.flat_begin(id)) * element_bytes;
    const bool full = limit_bytes > 0 && bytes >= limit_bytes;
    if (!full && id != 0) continue;
    for (ParamId member = id; member < end; ++member) bucket_of_[member] = buckets_.size();
    buckets_.push_back({id, end, 0, formatted("grads bucket {}", buckets_.size()), nullptr});
    end = id;
    bytes = 0;
  }
}

void GradBuckets::begin() {
  for (Bucket& bucket : buckets_) bucket.missing = bucket.end - bucket.first;
  next_launch_ = 0;
  next_retire_ = 0;
  times_ = {};
  timer_.restart();
}

void GradBuckets::ready(ParamId id) {
  --buckets_[bucket_of_[id]].missing;
  times_.last_ready_s = timer_.seconds();
  while (next_launch_ < buckets_.size() && buckets_[next_launch_].missing == 0)
    launch(buckets_[next_launch_]);
  poll();
}

void GradBuckets::launch(Bucket& bucket) {
  const double now = timer_.seconds();
  if (next_launch_ == 0) times_.first_launch_s = now;
  if (next_retire_ == next_launch_) busy_since_s_ = now;
  const std::int64_t begin = registry_.flat_begin(bucket.first);
  const std::int64_t count = registry_.flat_end(bucket.end - 1) - begin;
  const at::Tensor grads = registry_.flat_grad().narrow(0, begin, count);
  bucket.work = group_.all_reduce({.input = grads.data_ptr(),
                                   .output = grads.data_ptr(),
                                   .count = static_cast<std::uint64_t>(count),
                                   .dtype = to_dtype(grads.scalar_type()),
                                   .op = ReduceOp::sum,
                                   .stream = current_stream(grads.device()),
                                   .tag = bucket.tag});
  ++next_launch_;
}

void GradBuckets::poll() {
  while (next_retire_ < next_launch_ && buckets_[next_retire_].work->poll()) retire_completed();
}

void GradBuckets::retire_completed() {
  buckets_[next_retire_].work.reset();
  ++next_retire_;
  if (next_retire_ == next_launch_) times_.comm_s += timer_.seconds() - busy_since_s_;
}

void GradBuckets::finish() {
  TRIREME_ASSERT(next_launch_ == buckets_.size());
  const double start = timer_.seconds();
  while (next_retire_ < buckets_.size()) {
    buckets_[next_retire_].work->wait();
    retire_completed();
  }
  times_.exposed_s = timer_.seconds() - start;
}

}  // namespace trireme
