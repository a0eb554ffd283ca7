#pragma once
#include <cstdint>
#include <vector>

/// Which keys every query sees, from places in the row and borders of documents. No LibTorch.
namespace trireme::ops {

/// Document borders of every row of a batch: 0 = first < ... < places of the row, one list a row.
/// Empty: every row is one document. No query sees a key of another document.
using RowBounds = std::vector<std::vector<std::int64_t>>;

/// Neighbours first, first + 1, ..., first + length - 1: tokens of a tensor, or places of a row.
struct TokenRange {
  std::int64_t first;
  std::int64_t length;

  bool operator==(const TokenRange&) const = default;
};

/// Places in the whole row of the tokens that a tensor holds of it: ranges in the tensor's order,
/// one list a row. Empty: token t is place t.
using RowPlaces = std::vector<std::vector<TokenRange>>;

/// A query sees the keys of its document; causal: those at its own place and before.
struct AttentionSetup {
  double scale = 1.0;  // of the scores, commonly 1 / sqrt(D)
  bool causal = true;
  RowBounds bounds = {};  // of the whole row, also where tensors hold a part of it
  RowPlaces query_places = {};
  RowPlaces key_places = {};
  bool wide = false;  // results in fp32 (fp64 of fp64): parts of a larger softmax, to be summed

  /// Queries and keys are the whole row in order: none is without a key.
  [[nodiscard]] bool whole_rows() const { return query_places.empty() && key_places.empty(); }
};

/// Queries that are neighbours in the tensor and in the row.
struct QueryPart {
  TokenRange tokens;
  std::int64_t num_before;  // of the document's keys, in order of place, seen by all of them
  bool diagonal;            // beyond those, query i sees the next i + 1

  [[nodiscard]] std::int64_t num_keys() const {
    return num_before + (diagonal ? tokens.length : 0);
  }

  bool operator==(const QueryPart&) const = default;
};

/// What one row holds of one document.
struct DocumentPlan {
  std::int64_t row;              // -1: the same in every row
  std::vector<TokenRange> keys;  // tokens in order of place
  std::int64_t num_keys;
  std::vector<QueryPart> queries;
};

using AttentionPlan = std::vector<DocumentPlan>;

/// Throws Error(internal) if bounds or places do not fit the tensors' lengths or one another.
void check_attention(const AttentionSetup& setup, std::int64_t batch, std::int64_t num_queries,
                     std::int64_t num_keys);

/// Every query and every key is in one document of the plan. Throws as check_attention, and where
/// two keys have one place.
AttentionPlan plan_attention(const AttentionSetup& setup, std::int64_t batch,
                             std::int64_t num_queries, std::int64_t num_keys);

/// True if no query sees any key.
bool sees_nothing(const AttentionPlan& plan);

/// True if some query sees no key.
bool has_blind_queries(const AttentionPlan& plan);

}  // namespace trireme::ops
