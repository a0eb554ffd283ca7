#include "pipeline/named.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "pipeline/greedy.hpp"

namespace trireme::pipeline {
namespace {

using enum ActionKind;

void add(std::vector<StageAction>& list, ActionKind kind, int stage, int micro_batch) {
  list.push_back({kind, stage, micro_batch});
}

std::vector<StageAction> gpipe_list(int rank, const Shape& shape) {
  std::vector<StageAction> list;
  for (int i = 0; i < shape.micro_batches; ++i) add(list, forward, rank, i);
  for (int i = 0; i < shape.micro_batches; ++i) add(list, backward, rank, i);
  return list;
}

/// Runs warm-up forward actions, then alternates forward and backward. Weight gradients follow
/// their input gradients `held_back` micro-batches later; negative: one combined backward action.
std::vector<StageAction> one_by_one_list(int rank, const Shape& shape, int held_back) {
  std::vector<StageAction> list;
  const int ahead = std::min(shape.ranks - rank - 1, shape.micro_batches);
  for (int i = 0; i < ahead; ++i) add(list, forward, rank, i);
  for (int i = 0; i < shape.micro_batches; ++i) {
    if (i + ahead < shape.micro_batches) add(list, forward, rank, i + ahead);
    add(list, held_back < 0 ? backward : input_grad, rank, i);
    if (held_back >= 0 && i >= held_back) add(list, weight_grad, rank, i - held_back);
  }
  for (int i = std::max(0, shape.micro_batches - std::max(held_back, 0));
       held_back >= 0 && i < shape.micro_batches; ++i)
    add(list, weight_grad, rank, i);
  return list;
}

/// Micro-batches action through a rank's stages in groups of p (the number of ranks). If p does not
/// divide the number of micro-batches, some groups are larger. Returns the size of the largest
/// group.
int largest_group(const Shape& shape) {
  const int groups = std::max(1, shape.micro_batches / shape.ranks);
  return std::max(shape.ranks, (shape.micro_batches + groups - 1) / groups);
}

/// Returns the number of warm-up forward actions of a rank.
int interleaved_ahead(int rank, const Shape& shape) {
  return 2 * (shape.ranks - rank - 1) + (shape.virtual_stages - 1) * largest_group(shape);
}

std::vector<StageAction> interleaved_list(int rank, const Shape& shape) {
  std::vector<StageAction> forwards;
  std::vector<StageAction> backwards;
  const int groups = std::max(1, shape.micro_batches / shape.ranks);
  for (int group = 0; group < groups; ++group) {
    const int begin = shape.micro_batches * group / groups;
    const int end = shape.micro_batches * (group + 1) / groups;
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
      const int last_first = shape.virtual_stages - 1 - chunk;
      for (int i = begin; i < end; ++i) {
        add(forwards, forward, chunk * shape.ranks + rank, i);
        add(backwards, backward, last_first * shape.ranks + rank, i);
      }
    }
  }
  const auto ahead =
      std::min(forwards.size(), static_cast<std::size_t>(interleaved_ahead(rank, shape)));
  std::vector<StageAction> list(forwards.begin(),
                                forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (ahead + i < forwards.size()) list.push_back(forwards[ahead + i]);
    list.push_back(backwards[i]);
  }
  return list;
}

/// Builds one rank's actions on its two stages of a V, in micro-batch order.
class VList {
 public:
  VList(int rank, int ranks) : stages_{rank, 2 * ranks - 1 - rank} {}

  void forward_of(int side) { add(list_, forward, stages_[side], forwards_[side]++); }

  /// `split` defers the weight gradient.
  void backward_of(int side, bool split = false) {
    add(list_, split ? input_grad : backward, stages_[side], backwards_[side]);
    if (split) left_.push_back({weight_grad, stages_[side], backwards_[side]});
    ++backwards_[side];
  }

  void oldest_weights() { list_.push_back(left_.at(next_left_++)); }

  std::vector<StageAction> take() { return std::move(list_); }

 private:
  std::array<int, 2> stages_;
  std::array<int, 2> forwards_{};
  std::array<int, 2> backwards_{};
  std::vector<StageAction> list_;
  std::vector<StageAction> left_;
  std::size_t next_left_ = 0;
};

/// Requires at least 2 p micro-batches. Side 0 goes down the ranks, side 1 goes up.
std::vector<StageAction> dualpipe_list(int rank, const Shape& shape) {
  const int behind = shape.ranks - rank - 1;
  VList list(rank, shape.ranks);
  for (int i = 0; i < 2 * behind; ++i) list.forward_of(0);
  for (int i = 0; i <= rank; ++i) {
    list.forward_of(0);
    list.forward_of(1);
  }
  for (int i = 0; i < behind; ++i) {
    list.backward_of(1, /*split=*/true);
    list.oldest_weights();
    list.forward_of(1);
  }
  for (int i = 0; i < shape.micro_batches - 2 * shape.ranks + rank + 1; ++i) {
    list.forward_of(0);
    list.backward_of(1);
    list.forward_of(1);
    list.backward_of(0);
  }
  for (int i = 0; i < behind; ++i) {
    list.backward_of(1);
    list.forward_of(1);
    list.backward_of(0);
  }
  const int half = (rank + 1) / 2;
  for (int i = 0; i <= rank; ++i) {
    list.backward_of(1, i > half || (i == half && rank % 2 == 1));
    list.backward_of(0, i >= half);
  }
  for (int i = 0; i < behind; ++i) {
    list.oldest_weights();
    list.backward_of(0, /*split=*/true);
  }
  for (int i = 0; i <= rank; ++i) list.oldest_weights();
  return list.take();
}

Schedule from_lists(const Shape& shape, Placement placement, auto&& list_of) {
  Schedule schedule{std::move(placement), shape.micro_batches, {}};
  for (int rank = 0; rank < shape.ranks; ++rank) schedule.lists.push_back(list_of(rank));
  return schedule;
}

bool is_v(std::string_view name) {
  return name == "zb-v" || name == "dualpipe-v";
}

}  // namespace

std::string mistake_in_stages(std::string_view name, int virtual_stages) {
  if (is_v(name) && virtual_stages > 2)
    return formatted("must be 2 with parallel.schedule = {} (a V-shaped placement)", name);
  if (!is_v(name) && name != "interleaved" && virtual_stages != 1)
    return formatted("must be 1 with parallel.schedule = {} (interleaved allows more)", name);
  return "";
}

int stages_per_rank(std::string_view name, int virtual_stages) {
  return is_v(name) ? 2 : virtual_stages;
}

Schedule named_schedule(std::string_view name, const Shape& shape) {
  TRIREME_ASSERT(mistake_in_stages(name, shape.virtual_stages).empty());
  const Placement looped = looped_placement(shape.ranks, shape.virtual_stages);
  if (name == "gpipe")
    return from_lists(shape, looped, [&](int rank) { return gpipe_list(rank, shape); });
  if (name == "1f1b")
    return from_lists(shape, looped, [&](int rank) { return one_by_one_list(rank, shape, -1); });
  if (name == "zb-h1")
    return from_lists(shape, looped, [&](int rank) { return one_by_one_list(rank, shape, rank); });
  if (name == "interleaved")
    return from_lists(shape, looped, [&](int rank) { return interleaved_list(rank, shape); });
  const Placement v = v_placement(shape.ranks);
  if (name == "dualpipe-v" && shape.micro_batches >= 2 * shape.ranks)
    return from_lists(shape, v, [&](int rank) { return dualpipe_list(rank, shape); });
  const int limit = 2 * shape.ranks + (name == "dualpipe-v" ? 1 : 0);
  return greedy_schedule(v, shape.micro_batches, {{ActionTimes{}}}, {.max_in_flight = limit});
}

Formula formula_of(std::string_view name, const Shape& shape) {
  const int p = shape.ranks;
  const int m = shape.micro_batches;
  const int v = shape.virtual_stages;
  if (m == 0) return {};
  // unit: one forward, input-gradient and weight-gradient action
  const double whole = static_cast<double>(p - 1) / m;
  if (name == "gpipe") return {whole, m};
  if (name == "1f1b") return {whole, std::min(m, p)};
  if (name == "zb-h1") return {whole / 3, std::min(m, p), m >= p};
  if (name == "interleaved")
    return {whole / v, std::min(m * v, interleaved_ahead(0, shape) + 1), m >= p};
  return {whole / 6, std::min(2 * m, 2 * p + (name == "dualpipe-v" ? 1 : 0)),
          name == "dualpipe-v" && m >= 2 * p};
}

}  // namespace trireme::pipeline
