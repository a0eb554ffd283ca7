// Records the calls of a run's saves and its pruning, then simulates a power failure after each
// call.
#include <gtest/gtest.h>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/retention.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "support/disk_recorder.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme {
namespace {

using namespace test;
using Lost = DiskImage::Lost;

constexpr int kRanks = 2;
constexpr unsigned kLayout = 4;

/// A checkpoint that the recorded run had completed when a call returned.
struct Promise {
  std::size_t num_calls = 0;  // the save returned after this number of calls
  std::int64_t step = 0;
};

struct Story {
  std::vector<DiskCall> calls;
  std::vector<Promise> promises;
  std::map<std::int64_t, std::string> hashes;
};

Story record_story() {
  Story story;
  const TempDirectory folder;
  const fs::path run = folder / "run";
  record_disk(folder.path());
  const auto append = [&] {
    const std::vector<DiskCall> calls = stop_recording();
    story.calls.insert(story.calls.end(), calls.begin(), calls.end());
  };
  for (const std::int64_t step : {1, 2, 3}) {
    save_layout(run / "checkpoints", step, make_logicals(static_cast<unsigned>(step)), kRanks,
                kLayout);
    story.promises.push_back({0, step});
  }
  checkpoint::prune_checkpoints(run / "checkpoints", {.run_id = "run", .keep_last = 1},
                                [](auto) {});
  append();
  std::int64_t step = 0;
  for (std::size_t i = 0; i < story.calls.size(); ++i) {
    const DiskCall& call = story.calls[i];
    // A save has returned once `latest` is renamed and its directory is synced.
    if (call.kind == DiskCall::Kind::rename && call.target.ends_with("/latest")) ++step;
    if (step > 0 && story.promises[static_cast<std::size_t>(step - 1)].num_calls == 0 &&
        call.kind == DiskCall::Kind::sync)
      story.promises[static_cast<std::size_t>(step - 1)].num_calls = i + 1;
  }
  for (const std::int64_t saved : {1, 2, 3}) {
    const TempDirectory other;
    save_layout(other.path(), saved, make_logicals(static_cast<unsigned>(saved)), kRanks, kLayout);
    story.hashes[saved] = hash_alone(
        checkpoint::Checkpoint::open(other.path() / checkpoint::step_directory_name(saved)));
  }
  return story;
}

/// Returns the step that loads from an image; 0 if none does. Fails the test if the step differs
/// from the saved one.
std::int64_t loaded_step(const Story& story, const DiskImage& image, const fs::path& folder) {
  image.write(folder);
  const auto found =
      checkpoint::find_newest_good(folder / "run" / "checkpoints", [](std::string_view) {});
  if (!found) return 0;
  EXPECT_EQ(hash_alone(*found), story.hashes.at(found->step()));
  return found->step();
}

TEST(PowerCut, AfterAnyCallTheNewestPromisedCheckpointLoads) {
  const Story story = record_story();
  ASSERT_GT(story.calls.size(), 100U);
  ASSERT_EQ(story.promises.size(), 3U);
  const TempDirectory folder;
  std::size_t images = 0;
  for (std::size_t count = 0; count <= story.calls.size(); ++count) {
    std::int64_t promised = 0;
    for (const Promise& promise : story.promises) {
      ASSERT_GT(promise.num_calls, 0U) << "step " << promise.step;
      if (promise.num_calls <= count) promised = promise.step;
    }
    const auto check = [&](Lost lost, unsigned seed) {
      const std::int64_t step =
          loaded_step(story, DiskImage(story.calls, count, lost, seed), folder.path());
      ++images;
      ASSERT_GE(step, promised) << "after call " << count << " lost " << static_cast<int>(lost);
      ASSERT_LE(step, promised + 1);
    };
    for (const Lost lost : {Lost::everything, Lost::data, Lost::names, Lost::nothing})
      check(lost, 0);
    for (unsigned seed = 1; seed <= 4; ++seed) check(Lost::some, seed);
    if (HasFatalFailure()) return;
  }
  RecordProperty("images", static_cast<int>(images));
}

TEST(PowerCut, ARecordingHoldsWhatWasDone) {
  const TempDirectory folder;
  record_disk(folder.path());
  write_file_atomic(folder / "a", "one");
  const std::vector<DiskCall> calls = stop_recording();

  const TempDirectory image;
  DiskImage(calls, calls.size(), Lost::everything).write(image.path());
  EXPECT_EQ(read_file(image / "a"), "one");
  for (std::size_t count = 0; count < calls.size(); ++count) {
    DiskImage(calls, count, Lost::everything).write(image.path());
    EXPECT_FALSE(fs::exists(image / "a")) << "must not exist before the directory is synced";
  }
}

}  // namespace
}  // namespace trireme
