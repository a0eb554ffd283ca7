#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/attention/mask.hpp"

/// Computes the keys that every query sees, from positions in the row, document boundaries and the
/// mask. All attention code reads these intervals. No LibTorch.
namespace trireme::ops {

/// Document boundaries of every row of a batch, one list per row: 0 = first < ... < row length.
/// Empty: every row is one document. No query sees a key of another document.
using RowBounds = std::vector<std::vector<std::int64_t>>;

/// The consecutive tokens of a tensor, or positions of a row, first ... first + length - 1.
struct TokenRange {
  std::int64_t first;
  std::int64_t length;

  bool operator==(const TokenRange&) const = default;
};

/// Appends a range. If it directly follows the last one, the last one is extended.
inline void append(std::vector<TokenRange>& ranges, TokenRange range) {
  if (!ranges.empty() && ranges.back().first + ranges.back().length == range.first) {
    ranges.back().length += range.length;
  } else {
    ranges.push_back(range);
  }
}

/// Positions in the whole row of a tensor's tokens: ranges in the tensor's order, one list per row.
/// Empty: token t is at position t.
using RowPositions = std::vector<std::vector<TokenRange>>;

class AttentionMemo;

/// Returns a memo for the calls of one micro-batch (attention/memo.hpp).
std::shared_ptr<AttentionMemo> make_attention_memo();

/// A query sees the keys of its document that the mask shows.
struct AttentionSetup {
  double scale = 1.0;  // factor of the scores, usually 1 / sqrt(D)
  AttentionMask mask = {};
  RowBounds bounds = {};  // bounds in the whole row, even if tensors hold only a part of it
  RowPositions query_positions = {};
  RowPositions key_positions = {};
  bool wide = false;  // results in fp32 (fp64 for fp64), to be merged with other parts of a softmax
  double softcap = 0;  // scores s become c * tanh(s / c) before the softmax; 0: unchanged. Only the
                       // plain path has it
  // stores the plan and its tensors for further calls; null: every call computes them again
  std::shared_ptr<AttentionMemo> memo = {};

  /// Returns true if queries and keys are the whole row in order. Every query then sees a key.
  [[nodiscard]] bool whole_rows() const { return query_positions.empty() && key_positions.empty(); }

  /// Returns false if every query sees every key.
  [[nodiscard]] bool masks() const { return mask.hides_keys() || !bounds.empty(); }
};

/// Queries that are adjacent in the tensor and in the row. Each one sees an interval of its
/// document's keys. From one query to the next, each end of the interval either stays or moves by
/// one key, throughout the part. Either all queries of a part see a key, or none does.
struct QueryPart {
  TokenRange tokens;
  KeyInterval first;  // keys that the first query sees
  bool begin_moves;
  bool end_moves;

  [[nodiscard]] KeyInterval seen(std::int64_t query) const {
    return {first.begin + (begin_moves ? query : 0), first.end + (end_moves ? query : 0)};
  }

  /// Returns the keys that at least one query sees.
  [[nodiscard]] KeyInterval keys() const { return {first.begin, seen(tokens.length - 1).end}; }

  [[nodiscard]] bool sees_no_key() const { return first.begin == first.end; }

  [[nodiscard]] QueryPart slice(std::int64_t query, std::int64_t length) const {
    return {{tokens.first + query, length}, seen(query), begin_moves, end_moves};
  }

  /// Returns the number of pairs of a query and a key that it sees.
  [[nodiscard]] std::int64_t num_pairs() const {
    const KeyInterval last = seen(tokens.length - 1);
    return tokens.length * (first.end - first.begin + last.end - last.begin) / 2;
  }

  bool operator==(const QueryPart&) const = default;
};

/// The part of one document that one row of the tensors holds.
struct DocumentPlan {
  std::int64_t row;              // -1: the same plan for every row
  std::vector<TokenRange> keys;  // sorted by position
  std::int64_t num_keys;
  std::vector<QueryPart> queries;

  [[nodiscard]] std::vector<TokenRange> tokens_of(KeyInterval interval) const;
};

using AttentionPlan = std::vector<DocumentPlan>;

/// Throws Error(internal) if bounds, positions, window and tensor lengths are inconsistent.
void check_attention(const AttentionSetup& setup, std::int64_t batch, std::int64_t num_queries,
                     std::int64_t num_keys);

/// Returns a plan in which every query and every key is in one document. Throws like
/// check_attention, and if two keys have the same position.
AttentionPlan plan_attention(const AttentionSetup& setup, std::int64_t batch,
                             std::int64_t num_queries, std::int64_t num_keys);

bool sees_nothing(const AttentionPlan& plan);

/// Returns true if at least one query sees no key.
bool has_queries_without_keys(const AttentionPlan& plan);

}  // namespace trireme::ops
