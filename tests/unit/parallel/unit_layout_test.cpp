#include "parallel/units/unit_layout.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>

namespace trireme::parallel {
namespace {

/// A block with fewer key heads than query heads, a norm, and a vocabulary of odd size.
struct Declared {
  std::vector<ParamSpec> specs;
  std::vector<ParamId> starts{0, 1};
  std::vector<std::string> names{"embedding", "layer 0"};

  Declared() {
    const auto add = [&](const char* name, std::vector<std::int64_t> shape,
                         std::optional<DimSplit> split, bool fused = false) {
      ParamSpec spec{.name = name, .shape = std::move(shape)};
      spec.split = split;
      spec.fuse_with_previous = fused;
      specs.push_back(std::move(spec));
    };
    add("table", {11, 6}, DimSplit{0});
    add("norm", {6}, {});
    add("q", {5 * 2, 6}, DimSplit{0, Axis::tp, 2});
    add("k", {1 * 2, 6}, DimSplit{0, Axis::tp, 2, 5}, true);
    add("o", {6, 5 * 2}, DimSplit{1, Axis::tp, 2});
  }

  [[nodiscard]] UnitLayout layout(const ShardGrid& grid, std::int64_t persist = 0) const {
    return {specs, starts, names, grid, persist};
  }
};

TEST(SplitRange, SplitsSizesThatDoNotDivideEvenly) {
  const DimSplit rows{0};
  EXPECT_EQ(split_range(11, rows, 3, 0), (IndexRange{0, 3}));
  EXPECT_EQ(split_range(11, rows, 3, 1), (IndexRange{3, 7}));
  EXPECT_EQ(split_range(11, rows, 3, 2), (IndexRange{7, 11}));
  const DimSplit heads{0, Axis::tp, 4};
  EXPECT_EQ(split_range(12, heads, 2, 0), (IndexRange{0, 4}));
  EXPECT_EQ(split_range(12, heads, 2, 1), (IndexRange{4, 12}));
}

TEST(SplitRange, GivesARankTheKeyHeadsThatItsQueryHeadsRead) {
  const DimSplit keys{0, Axis::tp, 4, 6};  // 6 query heads read 2 key heads of 4 rows
  EXPECT_EQ(split_range(8, keys, 3, 0), (IndexRange{0, 4}));  // query heads 0, 1
  EXPECT_EQ(split_range(8, keys, 3, 1), (IndexRange{0, 8}));  // query heads 2 and 3
  EXPECT_EQ(split_range(8, keys, 3, 2), (IndexRange{4, 8}));
  for (int rank = 0; rank < 6; ++rank)
    EXPECT_EQ(split_range(8, keys, 6, rank).begin, rank < 3 ? 0 : 4);
}

TEST(UnitLayout, EveryElementIsOwnedByExactlyOneRank) {
  const Declared declared;
  for (const int tp : {1, 2, 3, 5}) {
    for (const auto& [shards, replicas, persist] :
         {std::array{1, 1, 0}, {1, 3, 0}, {2, 1, 0}, {3, 2, 7}, {4, 1, 67}}) {
      std::map<std::pair<ParamId, std::int64_t>, int> owners;  // owners of global elements
      for (int t = 0; t < tp; ++t) {
        for (int s = 0; s < shards; ++s) {
          for (int r = 0; r < replicas; ++r) {
            const UnitLayout layout = declared.layout({tp, t, shards, s, replicas, r}, persist);
            for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
              for (const ParamSpan& span : layout.owned_spans(unit)) {
                const std::vector<std::int64_t>& shape = declared.specs[span.id].shape;
                Slice slice = layout.param(span.id).slice;
                slice.flat_begin = span.first;
                slice.flat_end = span.first + span.count;
                for (const SliceRun& run : intersect(shape, slice, Slice::whole(shape)))
                  for (std::int64_t i = 0; i < run.count; ++i)
                    ++owners[{span.id, run.target_index + i}];
              }
            }
          }
        }
      }
      std::size_t elements = 0;
      for (const ParamSpec& spec : declared.specs)
        elements += static_cast<std::size_t>(Slice::whole(spec.shape).count());
      EXPECT_EQ(owners.size(), elements) << tp << " " << shards << " " << replicas;
      for (const auto& [element, count] : owners) EXPECT_EQ(count, 1) << element.first;
    }
  }
}

TEST(UnitLayout, ExpertsInTheirOwnGridAreOwnedByExactlyOneRankOfIt) {
  Declared declared;
  ParamSpec experts{.name = "experts", .shape = {6, 3, 5}};
  experts.split = DimSplit{2};
  experts.of_experts = true;
  declared.specs.insert(declared.specs.begin() + 2, experts);
  for (const auto& [etp, ep, shards, replicas] :
       {std::array{1, 2, 1, 2}, {2, 3, 2, 1}, {1, 6, 1, 1}, {3, 1, 2, 2}}) {
    std::map<std::int64_t, int> owners;
    for (int t = 0; t < etp; ++t)
      for (int e = 0; e < ep; ++e)
        for (int s = 0; s < shards; ++s)
          for (int r = 0; r < replicas; ++r) {
            const ShardGrid grid{etp, t, shards, s, replicas, r, ep, e};
            const UnitLayout layout(declared.specs, declared.starts, declared.names,
                                    {2, 1, 4, 2, 1, 0}, 0, grid);
            ASSERT_EQ(layout.units().size(), 3U);
            ASSERT_EQ(layout.units()[1].experts_of, 2U);
            EXPECT_TRUE(layout.units()[2].experts);
            EXPECT_EQ(layout.units()[2].params, std::vector<ParamId>{2});
            EXPECT_EQ(layout.param(2).used_with, 1U);
            EXPECT_EQ(layout.trainable_experts().count(), layout.units()[2].count);
            EXPECT_EQ(layout.trainable_experts().end, layout.trainable_count());
            EXPECT_EQ(layout.part(2).count() * shards, layout.units()[2].count);
            EXPECT_EQ(layout.parts_count(),
                      (layout.units()[0].count + layout.units()[1].count) / 4 +
                          layout.units()[2].count / shards);
            for (const ParamSpan& span : layout.owned_spans(2)) {
              Slice slice = layout.param(2).slice;
              slice.flat_begin = span.first;
              slice.flat_end = span.first + span.count;
              for (const SliceRun& run :
                   intersect(experts.shape, slice, Slice::whole(experts.shape)))
                for (std::int64_t i = 0; i < run.count; ++i) ++owners[run.target_index + i];
            }
          }
    EXPECT_EQ(owners.size(), 90U) << etp << " " << ep;
    for (const auto& [element, count] : owners) EXPECT_EQ(count, 1) << element;
  }
}

TEST(UnitLayout, PartsAreEqualAndCoverTheUnit) {
  const Declared declared;
  for (int shard = 0; shard < 3; ++shard) {
    const UnitLayout layout = declared.layout({2, 1, 3, shard, 2, 0});
    for (std::size_t unit = 0; unit < 2; ++unit) {
      const std::int64_t size = layout.units()[unit].count / 3;
      EXPECT_EQ(layout.part(unit), (IndexRange{shard * size, (shard + 1) * size}));
      EXPECT_EQ(layout.share(unit).count() * 2, size);
      EXPECT_EQ(size % 64, 0) << "blocks of squares and vectors stay whole";
    }
    EXPECT_EQ(layout.parts_count() * 3, layout.count());
  }
}

TEST(UnitLayout, SmallParametersLieInAUnitOfTheirOwn) {
  const UnitLayout layout = Declared().layout({1, 0, 2, 0, 1, 0}, 7);

  ASSERT_EQ(layout.units().size(), 3U);
  EXPECT_TRUE(layout.units()[2].persistent);
  EXPECT_EQ(layout.units()[2].params, std::vector<ParamId>{1});
  EXPECT_EQ(layout.param(1).unit, 2U);
  EXPECT_EQ(layout.param(1).used_with, 1U);
  EXPECT_EQ(layout.units()[1].params, (std::vector<ParamId>{2, 3, 4}));
  EXPECT_FALSE(layout.units()[1].persistent);
  EXPECT_EQ(Declared().layout({1, 0, 2, 0, 1, 0}, 13).param(3).unit, 1U)
      << "what is fused counts as one";
}

TEST(UnitLayout, TrainableParametersAmongFrozenOnesAreTheLastUnit) {
  Declared declared;
  for (ParamSpec& spec : declared.specs) spec.frozen = spec.name != "q" && spec.name != "k";
  const UnitLayout layout = declared.layout({2, 1, 3, 1, 1, 0}, 7);

  ASSERT_EQ(layout.units().size(), 4U);
  const Unit& base = layout.units()[1];
  const Unit& small = layout.units()[2];
  const Unit& trained = layout.units()[3];
  EXPECT_EQ(base.params, std::vector<ParamId>{4});
  EXPECT_EQ(small.params, std::vector<ParamId>{1});
  EXPECT_TRUE(base.frozen && small.frozen && layout.units()[0].frozen);
  EXPECT_EQ(trained.params, (std::vector<ParamId>{2, 3}));
  EXPECT_EQ(trained.name, "layer 0 trained");
  EXPECT_TRUE(trained.persistent);
  EXPECT_FALSE(trained.frozen);
  EXPECT_EQ(layout.param(2).used_with, 1U);
  EXPECT_EQ(layout.trainable_units(), std::vector<std::size_t>{3});
  EXPECT_EQ(trained.begin, layout.count() - trained.count) << "among all weights";
  EXPECT_EQ(trained.trainable_begin, 0) << "among gradients and optimizer state";
  EXPECT_EQ(layout.trainable_count(), trained.count);
  EXPECT_EQ(layout.trainable_parts_count() * 3, trained.count);
}

TEST(UnitLayout, ABlockOfALargeModelIsFewSlicesARank) {
  Declared declared;
  const UnitLayout layout = declared.layout({1, 0, 1024, 17, 1, 0});
  std::size_t slices = 0;
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit)
    slices += layout.owned_spans(unit).size();
  EXPECT_LE(slices, 2U);
}

}  // namespace
}  // namespace trireme::parallel
