#include "train/state/saver.hpp"

#include <gtest/gtest.h>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/files/file.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::train {
namespace {

/// A resumed run with older checkpoints.
class SaverTest : public Scratch {
 protected:
  [[nodiscard]] checkpoint::StateDict state() {
    return {{{.name = "param/w",
              .shape = {std::ssize(weights_)},
              .slice = parallel::Slice::whole({std::ssize(weights_)}),
              .bytes = std::as_writable_bytes(std::span(weights_))}},
            {},
            {}};
  }

  std::filesystem::path save_step(std::int64_t step) {
    return checkpoint::save_checkpoint(at("checkpoints"), step, state(), world_, {"run", true});
  }

  comm::SelfCommunicator world_;
  std::vector<float> weights_ = std::vector<float>(1000, 1.5F);
};

TEST_F(SaverTest, OlderCheckpointsAreNotReadBeforeTheyAreDeleted) {
  save_step(1);
  save_step(2);
  const std::filesystem::path shard = save_step(3) / "shard-00000-of-00001.h5";
  std::string bytes = read_file(shard);
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomic(shard, bytes);
  CheckpointSaver saver(at("checkpoints"), "run", {.keep_last = 2}, nullptr, world_);
  saver.trust_existing();

  saver.save(4, state());

  EXPECT_EQ(checkpoint::list_steps(at("checkpoints")), (std::vector<std::int64_t>{4, 3}));
}

}  // namespace
}  // namespace trireme::train
