#include <gtest/gtest.h>

#include <map>

#include "ops/attention/bundle.hpp"

namespace trireme::ops {
namespace {

using SeenKeys = std::vector<std::int64_t>;                                // tokens, in order
using SeenOf = std::map<std::pair<std::int64_t, std::int64_t>, SeenKeys>;  // by row and query token

void add_tokens(const std::vector<TokenRange>& ranges, SeenKeys& tokens) {
  for (const TokenRange& range : ranges) {
    for (std::int64_t i = 0; i < range.length; ++i) tokens.push_back(range.first + i);
  }
}

SeenOf seen_in_plan(const AttentionPlan& plan) {
  SeenOf seen;
  for (const DocumentPlan& document : plan) {
    for (const QueryPart& part : document.queries) {
      for (std::int64_t query = 0; query < part.tokens.length; ++query) {
        SeenKeys& keys = seen[{document.row, part.tokens.first + query}];
        add_tokens(document.tokens_of(part.seen(query)), keys);
      }
    }
  }
  return seen;
}

/// Also checks the tiles themselves.
SeenOf seen_in_bundles(const std::vector<DocumentBundle>& bundles) {
  SeenOf seen;
  for (const DocumentBundle& bundle : bundles) {
    SeenKeys keys;
    add_tokens(bundle.keys, keys);
    EXPECT_EQ(std::ssize(keys), bundle.num_keys);
    for (const QueryTile& tile : bundle.tiles) {
      SeenKeys queries;
      add_tokens(tile.tokens, queries);
      EXPECT_EQ(std::ssize(queries), tile.count);
      for (std::int64_t i = 0; i < kTileQueries; ++i) {
        const auto column = static_cast<std::size_t>(std::min(i, tile.count - 1));
        const auto at = static_cast<std::size_t>(i);
        EXPECT_EQ(tile.begin[at], tile.begin[column]);
        EXPECT_EQ(tile.end[at], tile.end[column]);
        if (tile.begin[at] == tile.end[at]) continue;
        EXPECT_LE(tile.keys.begin, tile.begin[at]);
        EXPECT_GE(tile.keys.end, tile.end[at]);
      }
      for (std::size_t i = 0; i < queries.size(); ++i) {
        const auto added =
            seen.emplace(std::pair{bundle.row, queries[i]},
                         SeenKeys(keys.begin() + tile.begin[i], keys.begin() + tile.end[i]));
        EXPECT_TRUE(added.second) << "query " << queries[i] << " is in two tiles";
      }
    }
  }
  return seen;
}

std::vector<std::int64_t> sizes_of(const std::vector<DocumentBundle>& bundles) {
  std::vector<std::int64_t> sizes;
  for (const DocumentBundle& bundle : bundles) sizes.push_back(bundle.num_keys);
  return sizes;
}

TEST(BundleDocuments, EveryQuerySeesTheKeysOfThePlan) {
  RowBounds bounds{{0, 1, 2, 3, 70, 71, 300, 301, 400}, {0, 100, 400}};
  AttentionSetup windowed{.mask = {.window = 20}, .bounds = bounds};
  AttentionSetup sharded{.bounds = bounds,
                         .query_positions = {{{0, 50}, {350, 50}}, {{0, 50}, {350, 50}}},
                         .key_positions = {{{50, 300}}, {{50, 300}}}};

  const struct {
    AttentionSetup setup;
    std::int64_t num_queries;
    std::int64_t num_keys;
  } cases[] = {{{.bounds = bounds}, 400, 400},
               {{}, 400, 400},
               {{.mask = {.causal = false}, .bounds = bounds}, 400, 400},
               {windowed, 400, 400},
               {sharded, 100, 300}};

  for (const auto& [setup, num_queries, num_keys] : cases) {
    const AttentionPlan plan = plan_attention(setup, 2, num_queries, num_keys);
    for (const std::int64_t most_keys : {1, 128, 4096})
      EXPECT_EQ(seen_in_bundles(bundle_documents(plan, most_keys)), seen_in_plan(plan));
  }
}

TEST(BundleDocuments, ShortDocumentsOfARowAreTogetherAndShareTiles) {
  RowBounds bounds(2);
  for (std::int64_t bound = 0; bound <= 200; ++bound) bounds[0].push_back(bound);
  bounds[1] = {0, 40, 130, 200};
  const AttentionPlan plan = plan_attention({.bounds = bounds}, 2, 200, 200);

  const std::vector<DocumentBundle> bundles = bundle_documents(plan, 120);

  EXPECT_EQ(sizes_of(bundles), (std::vector<std::int64_t>{120, 80, 40, 90, 70}));
  EXPECT_EQ(bundles[0].tiles.size(), 2U);  // 64 + 56 queries
  EXPECT_EQ(bundles[2].row, 1);
  EXPECT_EQ(sizes_of(bundle_documents(plan, 130)), (std::vector<std::int64_t>{130, 70, 130, 70}));
  EXPECT_EQ(sizes_of(bundle_documents(plan, 1000)), (std::vector<std::int64_t>{200, 200}));
}

}  // namespace
}  // namespace trireme::ops
