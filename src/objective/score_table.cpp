#include "objective/score_table.hpp"

#include <limits>

#include "core/error.hpp"

namespace trireme {

ScoreTable::ScoreTable(std::int64_t num_pairs)
    : values_(static_cast<std::size_t>(6 * num_pairs), 0) {}

void ScoreTable::put(const Microbatch& batch, const SequenceScores& scores) {
  const std::size_t row = values_.size() / 3;
  for (std::int64_t i = 0; i < 2 * batch.num_pairs; ++i) {
    const std::int64_t record = batch.pair_records[static_cast<std::size_t>(i / 2)];
    const auto at = static_cast<std::size_t>(2 * record + i % 2);
    if (record < 0 || at >= row)
      fail(ErrorKind::internal, "pair {} of a set of {} pairs", record, row / 2);
    values_[at] += scores.sums[i].item<double>();
    values_[row + at] += scores.counts[i].item<double>();
    values_[2 * row + at] += 1;
  }
}

void ScoreTable::gather(Communicator& group) {
  group
      .all_reduce({.input = values_.data(),
                   .output = values_.data(),
                   .count = values_.size(),
                   .dtype = DType::f64,
                   .op = ReduceOp::sum,
                   .tag = "reference scores"})
      ->wait();
}

std::vector<double> ScoreTable::sums() const {
  const std::size_t row = values_.size() / 3;
  std::vector<double> sums;
  for (std::size_t i = 0; i < row; ++i) {
    const double times = values_[2 * row + i];
    sums.push_back(times > 0 ? values_[i] / times : std::numeric_limits<double>::quiet_NaN());
  }
  return sums;
}

std::vector<std::int32_t> ScoreTable::counts() const {
  const std::size_t row = values_.size() / 3;
  std::vector<std::int32_t> counts;
  for (std::size_t i = 0; i < row; ++i) {
    const double times = values_[2 * row + i];
    counts.push_back(times > 0 ? static_cast<std::int32_t>(values_[row + i] / times) : 0);
  }
  return counts;
}

}  // namespace trireme
