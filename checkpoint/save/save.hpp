#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/disk/aligned_buffer.hpp"
#include "checkpoint/disk/disk_writer.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/state.hpp"
#include "checkpoint/save/publish.hpp"
#include "checkpoint/save/shard_file.hpp"
#include "comm/communicator.hpp"
#include "core/error.hpp"

/// Saves a checkpoint in three stages, so that the middle stage can run on a writer thread that
/// never communicates:
///
///   stage_checkpoint    collective   temporary directory; owned tensors copied, or borrowed
///   write_staged_shard  this rank    its HDF5 shard: skeleton, raw writes, hashes, fsync
///   commit_checkpoint   collective   manifest, one rename to step-NNNNNNNNN, `latest`
///
/// async_saver.hpp runs the middle stage during training. Readers see no change before the rename.
/// An error on one rank is thrown on all ranks, and the earlier checkpoint stays. Every step of the
/// protocol has a failpoint "checkpoint.*"; docs/formats/checkpoint.md lists them. The directory
/// must belong to this run alone (run_lock.hpp).
namespace trireme::checkpoint {

struct SaveOptions {
  std::string run_id = "run";  // plain name; the same on all ranks and for the whole run
  bool copy = true;            // false: borrow StateTensor::bytes until write_staged_shard returns
};

/// The part of this rank in a save in flight. Move-only.
struct StagedCheckpoint {
  Unpublished whole;
  ShardIdentity identity;
  std::vector<SliceToWrite> slices;
  AlignedBuffer arena;  // memory of copied `slices`
};

/// The result of write_staged_shard: a partial manifest or an error.
struct WrittenShard {
  CheckpointManifest part;
  std::optional<Error> error;
};

/// Returns the tensors that this rank writes if each rank writes whole tensors. All ranks pass the
/// same tensors.
std::vector<StateTensor> share_of_rank(std::vector<StateTensor> tensors,
                                       const comm::Communicator& world);

/// Removes leftovers of killed saves and creates the temporary directory (rank 0). All ranks must
/// pass equal step, values and files. The commit checks that each element has exactly one owner.
/// Collective. Throws Error(usage) if step-NNNNNNNNN already exists, Error(internal) for an
/// inconsistent StateDict.
StagedCheckpoint stage_checkpoint(const std::filesystem::path& directory, std::int64_t step,
                                  const StateDict& state, comm::Communicator& world,
                                  const SaveOptions& options);

/// Copies the owned elements of borrowed tensors into `memory` if it is large enough; reused memory
/// avoids page faults. Not collective. Throws std::bad_alloc.
void copy_slices(StagedCheckpoint& staged, AlignedBuffer memory);

/// Writes the shard of this rank. Does not communicate and never throws: commit_checkpoint agrees
/// on the error. `rate_limit` limits the write rate.
WrittenShard write_staged_shard(const StagedCheckpoint& staged,
                                WriteRateLimit* rate_limit = nullptr) noexcept;

/// Returns the published directory. Collective. If it throws (the same error on all ranks), nothing
/// was published.
std::filesystem::path commit_checkpoint(const StagedCheckpoint& staged, const WrittenShard& written,
                                        comm::Communicator& world);

/// Runs all three stages without a copy. Collective.
std::filesystem::path save_checkpoint(const std::filesystem::path& directory, std::int64_t step,
                                      const StateDict& state, comm::Communicator& world,
                                      const SaveOptions& options);

}  // namespace trireme::checkpoint
