#include "parallel/experts/row_exchange.hpp"

#include <ATen/ATen.h>

#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "parallel/collectives.hpp"

namespace trireme::parallel {
namespace {

using Counts = std::vector<std::uint64_t>;

/// Converts counts of rows to counts of elements.
Counts elements_of(const Counts& counts, const at::Tensor& rows) {
  std::uint64_t width = 1;
  for (std::int64_t dim = 1; dim < rows.dim(); ++dim)
    width *= static_cast<std::uint64_t>(rows.size(dim));
  Counts elements;
  for (const std::uint64_t count : counts) elements.push_back(count * width);
  return elements;
}

at::Tensor empty_rows(const Counts& counts, const at::Tensor& like) {
  std::vector<std::int64_t> shape(like.sizes().begin(), like.sizes().end());
  shape.front() =
      static_cast<std::int64_t>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  return at::empty(shape, like.options());
}

/// Returns the number of rows that each rank has for each local expert, [size, local experts].
/// `counts` has this rank's rows for each expert. Collective.
at::Tensor counts_for_here(const ExpertGroup& group, const at::Tensor& counts) {
  const std::int64_t experts = counts.numel();
  Counts sent;
  for (int rank = 0; rank < group.size(); ++rank)
    sent.push_back(static_cast<std::uint64_t>(group.held(experts, rank).count()));
  const std::int64_t here = group.held(experts).count();
  const at::Tensor received = at::empty({group.size(), here}, counts.options());
  all_to_all(group.group(), counts, sent, received,
             Counts(sent.size(), static_cast<std::uint64_t>(here)), "expert counts")
      ->wait();
  return received;
}

}  // namespace

at::Tensor PendingRows::wait() {
  if (work_) work_->wait();
  work_.reset();
  sent_.reset();
  const at::Tensor arrived = std::exchange(received_, {});
  return order_.defined() ? arrived.index_select(0, order_) : arrived;
}

RowExchange::RowExchange(const ExpertGroup& group, const at::Tensor& bounds) {
  const std::int64_t experts = bounds.numel() - 1;
  if (group.size() == 1) {
    bounds_ = ops::ExpertBounds(bounds);
    return;
  }
  group_ = &group.group();
  const at::Tensor sent = bounds.diff();
  const at::Tensor received = counts_for_here(group, sent);
  const at::Tensor host = at::cat({sent, received.flatten()}).to(at::kCPU);
  const auto* next = host.const_data_ptr<std::int64_t>();
  const auto take = [&next](std::int64_t count) {
    const std::int64_t sum = std::accumulate(next, next + count, std::int64_t{0});
    next += count;
    return static_cast<std::uint64_t>(sum);
  };
  const std::int64_t here = received.size(1);
  for (int rank = 0; rank < group.size(); ++rank)
    sent_.push_back(take(group.held(experts, rank).count()));
  const auto* const counts = next;
  std::vector<std::int64_t> here_bounds{0};
  for (std::int64_t expert = 0; expert < here; ++expert) {
    std::int64_t rows = 0;
    for (int rank = 0; rank < group.size(); ++rank) rows += counts[rank * here + expert];
    here_bounds.push_back(here_bounds.back() + rows);
  }
  for (int rank = 0; rank < group.size(); ++rank) received_.push_back(take(here));
  const at::Tensor expert_of =
      at::arange(here, received.options())
          .repeat({group.size()})
          .repeat_interleave(received.flatten(), 0, /*output_size=*/here_bounds.back());
  order_ = std::get<1>(expert_of.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
  bounds_ = ops::ExpertBounds(std::move(here_bounds));
}

PendingRows RowExchange::send(const at::Tensor& rows, std::string_view tag) const {
  PendingRows moving;
  if (!moves()) {
    moving.received_ = rows;
    return moving;
  }
  moving.sent_ = rows;
  moving.received_ = empty_rows(received_, rows);
  moving.order_ = order_;
  moving.work_ = all_to_all(*group_, rows, elements_of(sent_, rows), moving.received_,
                            elements_of(received_, rows), tag);
  return moving;
}

PendingRows RowExchange::give_back(const at::Tensor& rows, std::string_view tag) const {
  PendingRows moving;
  if (!moves()) {
    moving.received_ = rows;
    return moving;
  }
  moving.sent_ = at::empty_like(rows).index_copy_(0, order_, rows);
  moving.received_ = empty_rows(sent_, rows);
  moving.work_ = all_to_all(*group_, moving.sent_, elements_of(received_, rows), moving.received_,
                            elements_of(sent_, rows), tag);
  return moving;
}

std::shared_ptr<const Route> RouteMemo::take(std::int64_t layer) {
  const auto found = routes_.find(layer);
  if (found == routes_.end()) return nullptr;
  std::shared_ptr<const Route> route = std::move(found->second);
  routes_.erase(found);
  return route;
}

void RouteMemo::keep(std::int64_t layer, std::shared_ptr<const Route> route) {
  routes_[layer] = std::move(route);
}

}  // namespace trireme::parallel
