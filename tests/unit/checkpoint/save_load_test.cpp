#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/load/replicas.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "support/hdf5_values.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

/// Loads a checkpoint on `ranks` ranks of a layout and saves it again.
void reshard(const fs::path& from, const fs::path& folder, std::int64_t step,
             const std::vector<Logical>& logicals, int ranks, unsigned layout) {
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    RankState mine = make_rank_state(logicals, world.rank(), ranks, layout, false);
    load_tensors(Checkpoint::open(from), mine.state, world);
    const RankState expected = make_rank_state(logicals, world.rank(), ranks, layout, true);
    EXPECT_EQ(mine.storage, expected.storage) << "rank " << world.rank() << " of " << ranks;
    EXPECT_EQ(mine.state.values.at("scaler.scale"), "65536");
    save_checkpoint(folder, step, mine.state, world, {});
  });
}

TEST(SaveLoad, ReshardThereAndBackKeepsEveryByteAndTheHash) {
  for (unsigned trial = 0; trial < 24; ++trial) {
    const TempDirectory folder;
    const int ranks = 1 + static_cast<int>(trial % 4);
    const int others = 1 + static_cast<int>(trial / 4 % 4);
    const std::vector<Logical> logicals = make_logicals(trial);

    save_layout(folder.path(), 7, logicals, ranks, trial);
    reshard(folder / "step-000000007", folder.path(), 8, logicals, others, trial + 100);
    reshard(folder / "step-000000008", folder / "again", 7, logicals, ranks, trial);

    const std::string hash = hash_alone(Checkpoint::open(folder / "step-000000007"));
    EXPECT_EQ(hash_alone(Checkpoint::open(folder / "step-000000008")), hash) << "trial " << trial;
    EXPECT_EQ(differing(folder / "again/step-000000007", folder / "step-000000007"), "")
        << "trial " << trial;
  }
}

TEST(SaveLoad, AByteIsReadOnceForAllReplicas) {
  for (unsigned trial = 0; trial < 24; ++trial) {
    const TempDirectory folder;
    const int ranks = 1 + static_cast<int>(trial % 4);
    const std::vector<Logical> logicals = make_logicals(trial);
    save_layout(folder.path(), 7, logicals, 2, trial);
    std::size_t all = 0;
    for (const Logical& logical : logicals) all += logical.bytes.size();
    std::atomic<std::size_t> read = 0;
    std::atomic<std::size_t> held = 0;
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      const Checkpoint checkpoint = Checkpoint::open(folder / "step-000000007");
      RankState mine = make_rank_state(logicals, world.rank(), ranks, trial + 100, false);
      for (const auto& bytes : mine.storage) held += bytes.size();
      const Replicas replicas(checkpoint.manifest(), mine.state, world);
      const StateDict own = replicas.to_read();
      for (const StateTensor& tensor : own.tensors) read += tensor.bytes.size();
    });
    EXPECT_EQ(read, all) << "trial " << trial << ", of " << held << " that ranks hold";
  }
}

/// A tensor of 5 rows: rank 0 owns rows 0 to 2 and rank 1 the rest. Rank 1 also has rows 1 and 2,
/// rank 2 rows 2 and 3, rank 3 all rows.
TEST(SaveLoad, CopiesComeFromAllTheirOwners) {
  const TempDirectory folder;
  const std::vector<Logical> logicals{{"param/kv", DType::f32, {5, 3}, std::vector<std::byte>(60)}};
  std::vector<Logical> filled = logicals;
  for (std::size_t i = 0; i < 60; ++i) filled[0].bytes[i] = static_cast<std::byte>(i + 1);
  save_layout(folder.path(), 7, filled, 1, 1);
  for (const bool owners : {true, false}) {
    comm::run_ranks(4, [&](comm::Communicator& world) {
      struct Rows {
        std::int64_t begin, end;
        bool owner;
      };
      const std::vector<std::vector<Rows>> rows{
          {{0, 3, true}}, {{1, 3, false}, {3, 5, true}}, {{2, 4, false}}, {{0, 5, false}}};
      StateDict state;
      std::vector<std::vector<std::byte>> storage;
      storage.reserve(2);
      for (const Rows& part : rows[static_cast<std::size_t>(world.rank())]) {
        const std::int64_t count = 3 * (part.end - part.begin);
        storage.emplace_back(static_cast<std::size_t>(4 * count));
        const parallel::Slice slice{{part.begin, 0}, {part.end - part.begin, 3}, 0, count};
        state.tensors.push_back(
            {"param/kv", DType::f32, {5, 3}, slice, storage.back(), part.owner && owners});
      }
      load_tensors(Checkpoint::open(folder / "step-000000007"), state, world);
      for (const StateTensor& tensor : state.tensors) {
        const auto first = static_cast<std::size_t>(12 * tensor.slice.offset[0]);
        for (std::size_t i = 0; i < tensor.bytes.size(); ++i)
          ASSERT_EQ(tensor.bytes[i], static_cast<std::byte>(first + i + 1)) << world.rank();
      }
    });
  }
}

TEST(SaveLoad, BytesCarryNoTime) {
  const TempDirectory folder;
  save_layout(folder / "a", 1, make_logicals(1), 2, 3);
  // HDF5 stores times in whole seconds
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  save_layout(folder / "b", 1, make_logicals(1), 2, 3);
  EXPECT_EQ(differing(folder / "a/step-000000001", folder / "b/step-000000001"), "");
}

TEST(SaveLoad, HashSeesEveryTensor) {
  const TempDirectory folder;
  std::vector<Logical> logicals = make_logicals(1);
  save_layout(folder.path(), 1, logicals, 2, 5);
  const std::string hash = hash_alone(Checkpoint::open(folder / "step-000000001"));
  for (std::size_t i = 0; i < logicals.size(); ++i) {
    if (logicals[i].bytes.empty()) continue;
    logicals[i].bytes.back() ^= std::byte{1};
    const auto step = static_cast<std::int64_t>(i) + 2;
    save_layout(folder.path(), step, logicals, 2, 5);
    EXPECT_NE(hash_alone(Checkpoint::open(folder.path() / step_directory_name(step))), hash)
        << logicals[i].name;
    logicals[i].bytes.back() ^= std::byte{1};
  }
}

TEST(SaveLoad, LogicalTensorsAndFilesReadBack) {
  const TempDirectory folder;
  const std::vector<Logical> logicals = make_logicals(3);
  save_layout(folder.path(), 40, logicals, 3, 11);

  const Checkpoint checkpoint = verify_checkpoint(folder / "step-000000040");

  for (const Logical& logical : logicals)
    EXPECT_EQ(checkpoint.read_logical(logical.name), logical.bytes) << logical.name;
  EXPECT_EQ(checkpoint.file("tokenizer.json"), "{}");
  EXPECT_TRUE(read_file(folder / "latest").starts_with("step-000000040\n"));
  message_of(ErrorKind::data, [&] { (void)checkpoint.read_logical("param/none"); });
  message_of(ErrorKind::data, [&] { (void)checkpoint.file("none"); });
}

TEST(SaveLoad, ShardsAreHdf5WithShapesAndIdentity) {
  const TempDirectory folder;
  const std::vector<Logical> logicals = make_logicals(3);
  save_layout(folder.path(), 40, logicals, 3, 11, "run-x");
  const Checkpoint checkpoint = Checkpoint::open(folder / "step-000000040");
  for (const auto& [name, tensor] : checkpoint.manifest().tensors) {
    for (const SavedSlice& slice : tensor.slices) {
      const Hdf5File file =
          Hdf5File::open(checkpoint.path() / checkpoint.manifest().shards.at(slice.shard).name);
      const Hdf5Dataset dataset = file.dataset(slice.dataset);
      EXPECT_EQ(dataset.offset, slice.at);
      EXPECT_EQ(dataset.count(), static_cast<std::uint64_t>(slice.part.count()));
      EXPECT_EQ(size_of(dataset.dtype), size_of(tensor.dtype));
      EXPECT_EQ(file.attribute_text("run_id"), "run-x");
      EXPECT_EQ(file.attribute_number("step"), 40U);
    }
  }
}

TEST(SaveLoad, LayoutOfOneRankWholeIsTheTensorItself) {
  const TempDirectory folder;
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  comm::run_ranks(1, [&](comm::Communicator& world) {
    StateDict state;
    state.tensors.push_back({"param/w",
                             DType::f32,
                             {2, 3},
                             parallel::Slice::whole({2, 3}),
                             std::as_writable_bytes(std::span(values)),
                             true});
    save_checkpoint(folder.path(), 1, state, world, {});
  });
  const Hdf5File file = Hdf5File::open(folder / "step-000000001/shard-00000-of-00001.h5");
  EXPECT_EQ(read_vector<float>(file, "/param/w", DType::f32), values);
  EXPECT_EQ(file.dataset("/param/w").shape, (std::vector<std::uint64_t>{2, 3}));
}

TEST(SaveLoad, ForeignNamesShapesAndDtypesAreListedTogether) {
  const TempDirectory folder;
  save_layout(folder.path(), 1, make_logicals(1), 2, 3);
  std::vector<Logical> other = make_logicals(1);
  other[0].shape = {6, 11};
  other[1].name = "param/model.final.weight";
  other[3].dtype = DType::i32;
  other[3].bytes.resize(4);
  for (const int ranks : {1, 3}) {
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      RankState mine = make_rank_state(other, world.rank(), ranks, 3, true);
      const auto before = mine.storage;
      const std::string text = message_of(ErrorKind::data, [&] {
        load_tensors(Checkpoint::open(folder / "step-000000001"), mine.state, world);
      });
      EXPECT_EQ(mine.storage, before);  // nothing was changed
      if (ranks > 1) return;
      EXPECT_NE(text.find("missing: param/model.final.weight"), std::string::npos) << text;
      EXPECT_NE(text.find("extra: param/model.norm.weight"), std::string::npos) << text;
      EXPECT_NE(text.find("saved as f32 [11, 6], required as f32 [6, 11]"), std::string::npos)
          << text;
      EXPECT_NE(text.find("optim/step: saved as i64 [], required as i32 []"), std::string::npos)
          << text;
    });
  }
}

TEST(SaveLoad, ParametersAloneLoadWhereOptimizerStateMayBeIgnored) {
  const TempDirectory folder;
  std::vector<Logical> logicals = make_logicals(1);
  save_layout(folder.path(), 1, logicals, 2, 3);
  std::erase_if(logicals,
                [](const Logical& logical) { return logical.name.starts_with("optim/"); });
  RankState mine = make_rank_state(logicals, 0, 1, 3, false);
  const Checkpoint checkpoint = Checkpoint::open(folder / "step-000000001");

  message_of(ErrorKind::data, [&] { load_tensors(checkpoint, mine.state); });
  load_tensors(checkpoint, mine.state, {.may_ignore = {"optim/"}});

  EXPECT_EQ(mine.storage, make_rank_state(logicals, 0, 1, 3, true).storage);
}

TEST(SaveLoad, StagedCopyIsWrittenWhateverHappensToTheTensorsLater) {
  const TempDirectory folder;
  const std::vector<Logical> logicals = make_logicals(9);
  save_layout(folder / "sync", 5, logicals, 2, 21);
  comm::run_ranks(2, [&](comm::Communicator& world) {
    RankState mine = make_rank_state(logicals, world.rank(), 2, 21, true);
    const StagedCheckpoint staged = stage_checkpoint(folder / "async", 5, mine.state, world, {});
    WrittenShard written;
    std::thread writer([&] { written = write_staged_shard(staged); });
    for (auto& bytes : mine.storage) std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
    writer.join();
    commit_checkpoint(staged, written, world);
  });
  EXPECT_EQ(differing(folder / "async/step-000000005", folder / "sync/step-000000005"), "");
}

TEST(SaveLoad, ErrorOnOneRankIsThrownOnAllAndLeavesTheEarlierCheckpoint) {
  const TempDirectory folder;
  const std::vector<Logical> logicals = make_logicals(9);
  save_layout(folder.path(), 1, logicals, 3, 2);
  const std::string hash = hash_alone(Checkpoint::open(folder / "step-000000001"));
  comm::run_ranks(3, [&](comm::Communicator& world) {
    const RankState mine = make_rank_state(logicals, world.rank(), 3, 2, true);
    const StagedCheckpoint staged = stage_checkpoint(folder.path(), 2, mine.state, world, {});
    if (world.rank() == 1)
      overwrite(staged.whole.temporary / shard_file_name(staged.identity), "in the way");
    const std::string text = message_of(
        ErrorKind::usage, [&] { commit_checkpoint(staged, write_staged_shard(staged), world); });
    EXPECT_NE(text.find("step 2 is not saved: rank 1:"), std::string::npos) << text;
  });
  EXPECT_EQ(list_steps(folder.path()), std::vector<std::int64_t>{1});
  EXPECT_FALSE(fs::exists(folder / ".tmp-step-000000002"));
  EXPECT_EQ(hash_alone(Checkpoint::open(folder / "step-000000001")), hash);
}

TEST(SaveLoad, ShardThatRankZeroDoesNotSeeIsNotCommitted) {
  const TempDirectory folder;
  const std::vector<Logical> logicals = make_logicals(9);
  comm::run_ranks(2, [&](comm::Communicator& world) {
    const RankState mine = make_rank_state(logicals, world.rank(), 2, 2, true);
    const StagedCheckpoint staged = stage_checkpoint(folder.path(), 2, mine.state, world, {});
    const WrittenShard written = write_staged_shard(staged);
    if (world.rank() == 1)
      fs::resize_file(staged.whole.temporary / shard_file_name(staged.identity), 100);
    message_of(ErrorKind::resource, [&] { commit_checkpoint(staged, written, world); });
  });
  EXPECT_TRUE(list_steps(folder.path()).empty());
}

TEST(SaveLoad, ExistingStepIsNeverOverwritten) {
  const TempDirectory folder;
  save_layout(folder.path(), 1, make_logicals(1), 2, 3);
  const auto before = contents(folder / "step-000000001");
  message_of(ErrorKind::usage, [&] { save_layout(folder.path(), 1, make_logicals(2), 2, 3); });
  EXPECT_EQ(contents(folder / "step-000000001"), before);
}

TEST(SaveLoad, AnElementWithTwoOwnersOrNoneIsAnInternalErrorAndNotSaved) {
  const TempDirectory folder;
  for (const bool twice : {true, false}) {
    const std::string text = message_of(ErrorKind::internal, [&] {
      comm::run_ranks(2, [&](comm::Communicator& world) {
        std::vector<float> values(4);
        StateDict state;
        state.tensors.push_back({"param/w",
                                 DType::f32,
                                 {4},
                                 parallel::Slice::whole({4}),
                                 std::as_writable_bytes(std::span(values)),
                                 twice});
        std::vector<float> more(1);
        state.tensors.push_back({"param/v",
                                 DType::f32,
                                 {2},
                                 parallel::Slice{{world.rank()}, {1}, 0, 1},
                                 std::as_writable_bytes(std::span(more)),
                                 world.rank() == 0});
        save_checkpoint(folder.path(), 1, state, world, {});
      });
    });
    EXPECT_NE(text.find("param/v: 1 of 2 elements"), std::string::npos) << text;
    EXPECT_EQ(text.find("param/w: more than its 4 elements") != std::string::npos, twice) << text;
  }
  EXPECT_TRUE(list_steps(folder.path()).empty());
}

TEST(SaveLoad, OverlapAndHoleOfEqualSizeIsFound) {
  const TempDirectory folder;
  const std::string text = message_of(ErrorKind::internal, [&] {
    comm::run_ranks(2, [&](comm::Communicator& world) {
      std::vector<float> values(4);
      const std::int64_t begin =
          world.rank();  // rank 0 has rows 0-1, rank 1 rows 1-2, and no rank owns row 3
      StateDict state;
      state.tensors.push_back({"param/w",
                               DType::f32,
                               {4, 2},
                               parallel::Slice{{begin, 0}, {2, 2}, 0, 4},
                               std::as_writable_bytes(std::span(values)),
                               true});
      save_checkpoint(folder.path(), 1, state, world, {});
    });
  });
  EXPECT_NE(text.find("param/w: slices overlap"), std::string::npos) << text;
}

TEST(SaveLoad, RanksThatDisagreeOnValuesSaveNothing) {
  const TempDirectory folder;
  const std::vector<Logical> logicals = make_logicals(1);
  message_of(ErrorKind::internal, [&] {
    comm::run_ranks(2, [&](comm::Communicator& world) {
      RankState mine = make_rank_state(logicals, world.rank(), 2, 3, true);
      mine.state.values["data.next_sample"] = std::to_string(world.rank());
      save_checkpoint(folder.path(), 1, mine.state, world, {});
    });
  });
  EXPECT_TRUE(list_steps(folder.path()).empty());
}

}  // namespace
}  // namespace trireme::checkpoint
