#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/key_interval.hpp"

/// Computes the keys that every query sees, from positions in the row, document boundaries and a window. All
/// attention code reads the intervals that are computed here. No LibTorch.
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

/// Appends a range; a range that follows the last one directly extends it.
inline void append(std::vector<TokenRange>& ranges, TokenRange range) {
  if (!ranges.empty() && ranges.back().first + ranges.back().length == range.first) {
    ranges.back().length += range.length;
  } else {
    ranges.push_back(range);
  }
}

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
  std::int64_t window = 0;  // a query sees only keys at a distance below window; 0: no limit

  /// Queries and keys are the whole row in order: none is without a key.
  [[nodiscard]] bool whole_rows() const { return query_places.empty() && key_places.empty(); }

  /// False if every query sees every key.
  [[nodiscard]] bool masks() const { return causal || window > 0 || !bounds.empty(); }

  /// Returns the places that a query sees if its document has no border: the only definition of
  /// causal and windowed attention.
  [[nodiscard]] KeyInterval places_seen(std::int64_t place) const {
    constexpr std::int64_t kFar = std::int64_t{1} << 60;  // behind every border
    return {window > 0 ? place + 1 - window : -kFar, causal       ? place + 1
                                                     : window > 0 ? place + window
                                                                  : kFar};
  }

  /// Returns how many keys the last query of a row sees. Cost formulas count as many keys for every
  /// query.
  [[nodiscard]] std::int64_t keys_of_last_query(std::int64_t length) const {
    const KeyInterval seen = places_seen(length - 1);
    return std::min(seen.end, length) - std::max<std::int64_t>(seen.begin, 0);
  }
};

/// Queries that are neighbours in the tensor and in the row. Each sees an interval of its document's
/// keys. From one query to the next, an end of the interval stays or moves by one key, all along the
/// part. Either all queries of a part see a key, or none does.
struct QueryPart {
  TokenRange tokens;
  KeyInterval first;  // keys that the first query sees
  bool begin_moves;
  bool end_moves;

  [[nodiscard]] KeyInterval seen(std::int64_t query) const {
    return {first.begin + (begin_moves ? query : 0), first.end + (end_moves ? query : 0)};
  }

  /// Returns the keys that some query sees.
  [[nodiscard]] KeyInterval keys() const { return {first.begin, seen(tokens.length - 1).end}; }

  [[nodiscard]] bool is_blind() const { return first.begin == first.end; }

  /// Returns the part's queries [query, query + length).
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
  std::int64_t row;              // -1: the same in every row
  std::vector<TokenRange> keys;  // tokens in order of place
  std::int64_t num_keys;
  std::vector<QueryPart> queries;

  /// Returns the tokens of an interval of the keys.
  [[nodiscard]] std::vector<TokenRange> tokens_of(KeyInterval interval) const;
};

using AttentionPlan = std::vector<DocumentPlan>;

/// Throws Error(internal) if bounds, places or the window do not fit the tensors' lengths or one
/// another.
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
