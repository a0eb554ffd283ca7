#include "support/layouts/layout_rows.hpp"

#include <algorithm>

#include "train/verify/trial_model.hpp"

namespace trireme::testing {
namespace {

/// Rows of RowKind::masked have targets only at these first positions, which lie in the first of 2
/// x 8 chunks.
constexpr std::int64_t kTargetPositions = 3;

/// Returns row `index`: one document that crosses every chunk edge. Its first `targets` positions
/// have a target.
data::Batch document_row(std::int64_t index, std::int64_t targets, std::int64_t vocab) {
  data::Batch batch = train::make_rows({index}, kRowLength, vocab);  // for the tokens of the row
  batch.segment_bounds = {0, static_cast<std::int32_t>(kRowLength)};
  batch.row_lengths = {kRowLength};
  batch.num_targets = std::min(targets, kRowLength - 1);
  for (std::int64_t i = 0; i < kRowLength; ++i) {
    const auto at = static_cast<std::size_t>(i);
    batch.positions[at] = i;
    batch.targets[at] = i < batch.num_targets ? batch.tokens[at + 1] : data::kIgnoreTarget;
  }
  return batch;
}

void append(data::Batch& all, const data::Batch& row) {
  const auto begin = static_cast<std::int32_t>(all.B * all.T);
  const auto add = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  add(all.tokens, row.tokens);
  add(all.targets, row.targets);
  add(all.positions, row.positions);
  add(all.sample_indices, row.sample_indices);
  add(all.row_lengths, row.row_lengths);
  for (std::size_t i = 1; i < row.segment_bounds.size(); ++i)
    all.segment_bounds.push_back(begin + row.segment_bounds[i]);
  all.B += row.B;
  all.num_targets += row.num_targets;
}

}  // namespace

std::int64_t LayoutRows::in_micro_batch(std::int64_t rank, std::int64_t i) const {
  if (kind == RowKind::uneven) return 2 - (rank + i) % 2;
  return kind == RowKind::documents ? 2 : 1;
}

std::int64_t LayoutRows::before(std::int64_t rank, std::int64_t i) const {
  std::int64_t rows = 0;
  for (std::int64_t r = 0; r <= rank; ++r)
    for (std::int64_t j = 0; j < (r < rank ? accumulation : i); ++j) rows += in_micro_batch(r, j);
  return rows;
}

std::int64_t LayoutRows::first_without_targets() const {
  return kind == RowKind::masked && dp > 1 ? before(dp - 1, 0) : in_update();
}

data::Batch LayoutRows::of(std::int64_t step, std::int64_t begin, std::int64_t count) const {
  data::Batch batch;
  batch.T = kRowLength;
  batch.update_samples = in_update();
  batch.update_batches = 1;
  batch.segment_bounds.push_back(0);
  for (std::int64_t row = begin; row < begin + count; ++row) {
    const std::int64_t index = step * in_update() + row;
    if (kind == RowKind::documents || kind == RowKind::uneven) {
      append(batch, train::make_rows({index}, kRowLength, vocab));
    } else if (kind == RowKind::one_document) {
      append(batch, document_row(index, kRowLength, vocab));
    } else {
      append(batch,
             document_row(index, row < first_without_targets() ? kTargetPositions : 0, vocab));
    }
  }
  return batch;
}

}  // namespace trireme::testing
