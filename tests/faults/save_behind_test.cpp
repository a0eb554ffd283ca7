/// An asynchronous save has the state of its step, although the next step has begun.

#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

class SaveBehind : public testing::RunProgram {
 protected:
  static std::vector<std::string> hashes(const std::string& run) {
    std::vector<std::string> all;
    for (const std::int64_t step : saved_steps(run)) {
      const std::string name = "step-00000000" + std::to_string(step);
      const Exit exit =
          trireme({"checkpoint", "hash", (path(run) / "checkpoints" / name).string()});
      EXPECT_EQ(exit.code, 0) << exit.err;
      all.push_back(exit.out);
    }
    return all;
  }
};

TEST_F(SaveBehind, NoUpdateBeforeTheStateIsCopied) {
  for (const std::string precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    Arguments arguments{"--train.steps",          "4", "--checkpoint.every", "1",
                        "--checkpoint.keep_last", "0", "--train.precision",  precision};
    ASSERT_EQ(pretrain(precision + "_at_once", arguments, {.ranks = 2}).code, 0);
    arguments.insert(arguments.end(), {"--checkpoint.async", "true"});

    // The copies of rank 1 start a second late, while a step takes milliseconds.
    const Exit exit = pretrain(precision + "_behind", arguments,
                               {.ranks = 2, .fault = "checkpoint.copy:1:*:delay"});

    ASSERT_EQ(exit.code, 0) << exit.err;
    const std::vector<std::string> at_once = hashes(precision + "_at_once");
    ASSERT_EQ(at_once.size(), 4U);
    EXPECT_EQ(hashes(precision + "_behind"), at_once);
  }
}

}  // namespace
}  // namespace trireme
