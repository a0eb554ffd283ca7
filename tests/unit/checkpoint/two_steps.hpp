#pragma once
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::test {

/// Checkpoints of steps 1 and 2 by two ranks; tests damage the newer one.
struct TwoSteps {
  TempDirectory folder;
  std::vector<Logical> logicals;  // content of step 2
  fs::path step = folder / "step-000000002";

  explicit TwoSteps(std::vector<Logical> newer = make_logicals(17)) : logicals(std::move(newer)) {
    constexpr unsigned kLayout = 4;
    save_layout(folder.path(), 1, make_logicals(18), 2, kLayout);
    save_layout(folder.path(), 2, logicals, 2, kLayout);
  }

  /// Expects that step 1 is loaded instead, with a warning that names step 2.
  void expect_fallback(const std::string& what) const {
    std::string warning;
    const auto found = checkpoint::find_newest_good(
        folder.path(), [&](std::string_view text) { warning += text; });
    ASSERT_TRUE(found.has_value()) << what;
    EXPECT_EQ(found->step(), 1) << what;
    EXPECT_NE(warning.find("step-000000002"), std::string::npos) << what;
  }

  /// Expects that a load without a prior check never gives wrong numbers.
  void expect_never_wrong(const std::string& what) const {
    RankState mine = make_rank_state(logicals, 0, 1, 1, false);
    try {
      checkpoint::load_tensors(checkpoint::Checkpoint::open(step), mine.state);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << what << ": " << error.what();
      return;
    }
    EXPECT_EQ(mine.storage, make_rank_state(logicals, 0, 1, 1, true).storage) << what;
  }
};

}  // namespace trireme::test
