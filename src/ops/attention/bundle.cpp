#include "ops/attention/bundle.hpp"

#include <algorithm>

namespace trireme::ops {
namespace {

/// Adds a query to the last tile, or to a new one if that is full.
void add_query(DocumentBundle& bundle, std::int64_t token, KeyInterval seen) {
  if (bundle.tiles.empty() || bundle.tiles.back().count == kTileQueries)
    bundle.tiles.emplace_back();
  QueryTile& tile = bundle.tiles.back();
  append(tile.tokens, {token, 1});
  const auto column = static_cast<std::size_t>(tile.count++);
  tile.begin[column] = static_cast<std::int32_t>(seen.begin);
  tile.end[column] = static_cast<std::int32_t>(seen.end);
  if (seen.begin == seen.end) return;
  const bool first = tile.keys.begin == tile.keys.end;
  tile.keys = {first ? seen.begin : std::min(tile.keys.begin, seen.begin),
               first ? seen.end : std::max(tile.keys.end, seen.end)};
}

void add_document(DocumentBundle& bundle, const DocumentPlan& document) {
  for (const QueryPart& part : document.queries) {
    for (std::int64_t query = 0; query < part.tokens.length; ++query) {
      const KeyInterval seen = part.seen(query);
      add_query(bundle, part.tokens.first + query,
                {bundle.num_keys + seen.begin, bundle.num_keys + seen.end});
    }
  }
  for (const TokenRange& range : document.keys) append(bundle.keys, range);
  bundle.num_keys += document.num_keys;
}

void fill_last_columns(QueryTile& tile) {
  const auto used = static_cast<std::size_t>(tile.count);
  std::fill(tile.begin.begin() + tile.count, tile.begin.end(), tile.begin[used - 1]);
  std::fill(tile.end.begin() + tile.count, tile.end.end(), tile.end[used - 1]);
}

}  // namespace

std::vector<DocumentBundle> bundle_documents(const AttentionPlan& plan, std::int64_t most_keys) {
  std::vector<DocumentBundle> bundles;
  for (const DocumentPlan& document : plan) {
    const bool starts = bundles.empty() || bundles.back().row != document.row ||
                        bundles.back().num_keys + document.num_keys > most_keys;
    if (starts) bundles.emplace_back().row = document.row;
    add_document(bundles.back(), document);
  }
  for (DocumentBundle& bundle : bundles) std::ranges::for_each(bundle.tiles, fill_last_columns);
  return bundles;
}

}  // namespace trireme::ops
