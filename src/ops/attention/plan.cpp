#include "ops/attention/plan.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "core/error.hpp"

namespace trireme::ops {
namespace {

using Ranges = std::vector<TokenRange>;
using Edges = std::vector<std::int64_t>;

/// Tokens that are adjacent in the tensor, in the row and in one document.
struct Segment {
  std::int64_t document;
  std::int64_t position;
  std::int64_t token;
  std::int64_t length;

  [[nodiscard]] std::int64_t end() const { return position + length; }
};

/// Extends the last segment if the next one follows it in the same row and document.
void append(std::vector<Segment>& segments, const Segment& next) {
  if (!segments.empty() && segments.back().document == next.document &&
      segments.back().end() == next.position) {
    segments.back().length += next.length;
  } else {
    segments.push_back(next);
  }
}

void check_bounds(const RowBounds& bounds, std::int64_t batch) {
  if (bounds.empty()) return;
  if (static_cast<std::int64_t>(bounds.size()) != batch) {
    fail(ErrorKind::internal, "attention: {} rows of bounds, batch {}", bounds.size(), batch);
  }
  for (std::size_t row = 0; row < bounds.size(); ++row) {
    const Edges& edges = bounds[row];
    const bool rising =
        edges.size() >= 2 && edges.front() == 0 &&
        std::adjacent_find(edges.begin(), edges.end(), std::greater_equal<>()) == edges.end();
    if (!rising) fail(ErrorKind::internal, "attention: bounds of row {} must rise from 0", row);
  }
}

void check_directories(const char* what, const RowPositions& positions, const RowBounds& bounds,
                       std::int64_t batch, std::int64_t length) {
  if (!positions.empty() && static_cast<std::int64_t>(positions.size()) != batch) {
    fail(ErrorKind::internal, "attention: {} rows of positions of {}, batch {}", positions.size(),
         what, batch);
  }
  for (std::size_t row = 0; row < static_cast<std::size_t>(batch); ++row) {
    std::int64_t count = positions.empty() ? length : 0;
    std::int64_t end = count;
    for (const TokenRange& range : positions.empty() ? Ranges{} : positions[row]) {
      if (range.first < 0 || range.length < 0) {
        fail(ErrorKind::internal, "attention: {} {} positions from {} in row {}", what,
             range.length, range.first, row);
      }
      count += range.length;
      end = std::max(end, range.first + range.length);
    }
    if (count != length) {
      fail(ErrorKind::internal, "attention: positions of {} {} in row {}, the tensor has {}", count,
           what, row, length);
    }
    if (!bounds.empty() && end > bounds[row].back()) {
      fail(ErrorKind::internal, "attention: {} at position {} of row {}, but its bounds end at {}",
           what, end - 1, row, bounds[row].back());
    }
  }
}

std::vector<Segment> split_at_boundaries(const Ranges& ranges, const Edges& edges) {
  std::vector<Segment> segments;
  std::int64_t token = 0;
  for (const TokenRange& range : ranges) {
    const std::int64_t end = range.first + range.length;
    for (std::int64_t position = range.first; position < end;) {
      const auto next = std::upper_bound(edges.begin(), edges.end(), position);
      const std::int64_t length = std::min(end, *next) - position;
      append(segments, {next - edges.begin(), position, token, length});
      token += length;
      position += length;
    }
  }
  return segments;
}

/// The number of keys before a position. For the next `length` positions, including this one, the
/// number stays or grows by one per position.
struct KeyCount {
  std::int64_t keys;
  bool moves;
  std::int64_t length;
};

/// `islands` are keys without gaps in the row, numbered within the document.
KeyCount count_before(std::int64_t position, const std::vector<Segment>& islands,
                      std::int64_t num_keys) {
  const std::int64_t last = position - 1;
  const auto island = std::find_if(islands.begin(), islands.end(),
                                   [&](const Segment& each) { return each.end() > last; });
  if (island == islands.end()) return {num_keys, false, std::numeric_limits<std::int64_t>::max()};
  if (last < island->position) return {island->token, false, island->position - last};
  return {island->token + position - island->position, true, island->end() - last};
}

/// Divides queries where the keys at an end of their intervals begin or end.
void add_parts(const Segment& queries, const std::vector<Segment>& islands,
               const AttentionSetup& setup, DocumentPlan& plan) {
  for (std::int64_t position = queries.position; position < queries.end();) {
    const KeyInterval seen = setup.mask.positions_seen(position);
    const KeyCount begin = count_before(seen.begin, islands, plan.num_keys);
    const KeyCount end = count_before(seen.end, islands, plan.num_keys);
    std::int64_t length = std::min({queries.end() - position, begin.length, end.length});
    // Keys before a gap leave the window one by one: split where none is left.
    if (begin.moves && !end.moves && begin.keys < end.keys)
      length = std::min(length, end.keys - begin.keys);
    plan.queries.push_back({{queries.token + position - queries.position, length},
                            {begin.keys, end.keys},
                            begin.moves,
                            end.moves});
    position += length;
  }
}

struct DocumentSegments {
  std::vector<Segment> queries;
  std::vector<Segment> keys;  // sorted by position
};

DocumentPlan plan_document(std::int64_t row, const DocumentSegments& segments,
                           const AttentionSetup& setup) {
  DocumentPlan plan{row, {}, 0, {}};
  std::vector<Segment> islands;
  for (const Segment& keys : segments.keys) {
    append(plan.keys, {keys.token, keys.length});
    append(islands, {keys.document, keys.position, plan.num_keys, keys.length});
    plan.num_keys += keys.length;
  }
  for (const Segment& queries : segments.queries) add_parts(queries, islands, setup, plan);
  return plan;
}

void plan_row(std::int64_t row, const Ranges& queries, const Ranges& keys, const Edges& edges,
              const AttentionSetup& setup, AttentionPlan& plan) {
  std::vector<Segment> sorted = split_at_boundaries(keys, edges);
  std::sort(sorted.begin(), sorted.end(),
            [](const Segment& a, const Segment& b) { return a.position < b.position; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1].end() <= sorted[i].position) continue;
    fail(ErrorKind::internal, "attention: two keys at position {} of row {}", sorted[i].position,
         std::max<std::int64_t>(row, 0));
  }
  std::map<std::int64_t, DocumentSegments> documents;
  for (const Segment& each : sorted) documents[each.document].keys.push_back(each);
  for (const Segment& each : split_at_boundaries(queries, edges))
    documents[each.document].queries.push_back(each);
  for (const auto& [number, segments] : documents)
    plan.push_back(plan_document(row, segments, setup));
}

bool same_in_all_rows(const RowPositions& positions) {
  return std::all_of(positions.begin(), positions.end(),
                     [&](const Ranges& row) { return row == positions.front(); });
}

}  // namespace

std::vector<TokenRange> DocumentPlan::tokens_of(KeyInterval interval) const {
  Ranges tokens;
  std::int64_t first = 0;  // key index of the range's first token
  for (const TokenRange& range : keys) {
    const std::int64_t begin = std::max(first, interval.begin);
    const std::int64_t end = std::min(first + range.length, interval.end);
    if (begin < end) tokens.push_back({range.first + begin - first, end - begin});
    first += range.length;
  }
  return tokens;
}

void check_attention(const AttentionSetup& setup, std::int64_t batch, std::int64_t num_queries,
                     std::int64_t num_keys) {
  if (!setup.mask.is_valid()) fail(ErrorKind::internal, "attention: the mask has invalid values");
  check_bounds(setup.bounds, batch);
  check_directories("queries", setup.query_positions, setup.bounds, batch, num_queries);
  check_directories("keys", setup.key_positions, setup.bounds, batch, num_keys);
  if (!setup.whole_rows()) return;
  if (num_queries != num_keys) {
    fail(ErrorKind::internal, "attention: {} queries, {} keys and no positions of either",
         num_queries, num_keys);
  }
  for (std::size_t row = 0; row < setup.bounds.size(); ++row) {
    if (setup.bounds[row].back() == num_keys) continue;
    fail(ErrorKind::internal, "attention: bounds of row {} end at {}, the row at {}", row,
         setup.bounds[row].back(), num_keys);
  }
}

AttentionPlan plan_attention(const AttentionSetup& setup, std::int64_t batch,
                             std::int64_t num_queries, std::int64_t num_keys) {
  check_attention(setup, batch, num_queries, num_keys);
  const auto places_of = [](const RowPositions& positions, std::size_t row, std::int64_t length) {
    return positions.empty() ? Ranges{{0, length}} : positions[row];
  };
  const bool alike = setup.bounds.empty() && same_in_all_rows(setup.query_positions) &&
                     same_in_all_rows(setup.key_positions);
  AttentionPlan plan;
  for (std::int64_t row = 0; row < (alike ? std::min<std::int64_t>(batch, 1) : batch); ++row) {
    const auto at = static_cast<std::size_t>(row);
    const Edges edges = setup.bounds.empty() ? Edges{0, std::numeric_limits<std::int64_t>::max()}
                                             : setup.bounds[at];
    plan_row(alike ? -1 : row, places_of(setup.query_positions, at, num_queries),
             places_of(setup.key_positions, at, num_keys), edges, setup, plan);
  }
  return plan;
}

bool sees_nothing(const AttentionPlan& plan) {
  return std::ranges::all_of(plan, [](const DocumentPlan& document) {
    return std::ranges::all_of(document.queries, &QueryPart::sees_no_key);
  });
}

bool has_queries_without_keys(const AttentionPlan& plan) {
  return std::ranges::any_of(plan, [](const DocumentPlan& document) {
    return std::ranges::any_of(document.queries, &QueryPart::sees_no_key);
  });
}

}  // namespace trireme::ops
