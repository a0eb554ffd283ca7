#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/disk/aligned_buffer.hpp"
#include "checkpoint/disk/pace.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/state.hpp"
#include "checkpoint/save/publish.hpp"
#include "checkpoint/save/shard_file.hpp"
#include "comm/communicator.hpp"
#include "core/error.hpp"

/// Saving, in three stages, so that the middle one can run on a writer thread
/// that never communicates:
///
///   stage_checkpoint    collective   temporary folder; owned tensors copied, or borrowed
///   write_staged_shard  this rank    its HDF5 shard: skeleton, raw writes, hashes, fsync
///   commit_checkpoint   collective   manifest, one rename to step-NNNNNNNNN, `latest`
///
/// write_behind.hpp runs the middle one behind training. Until the rename nothing that a reader
/// looks at has changed; an error on one rank is thrown on all, and the earlier checkpoint stays.
/// Failpoints stand at every step of the protocol: "checkpoint.*".
/// docs/formats/checkpoint.md lists them and the protocol. The folder must belong to this run alone
/// (run_lock.hpp).
namespace trireme {

struct SaveOptions {
  std::string run_id = "run";  // plain name; the same on all ranks and for the whole run
  bool copy = true;            // false: borrow StateTensor::bytes until write_staged_shard is done
};

/// This rank's part of a save in flight. Move-only.
struct StagedCheckpoint {
  Unpublished whole;
  ShardIdentity identity;
  std::vector<SliceToWrite> slices;
  AlignedBuffer arena;  // backs `slices` when copied
};

/// What write_staged_shard leaves for the commit: a manifest part, or the error.
struct WrittenShard {
  CheckpointManifest part;
  std::optional<Error> error;
};

/// Collective. Removes leftovers of killed saves and makes the temporary folder (rank 0).
/// Ranks must agree on step, values and files; exactly one owner for each element
/// is checked at commit. Throws Error(usage) if step-NNNNNNNNN exists already,
/// Error(internal) for an inconsistent StateDict.
StagedCheckpoint stage_checkpoint(const std::filesystem::path& folder, std::int64_t step,
                                  const StateDict& state, Communicator& world,
                                  const SaveOptions& options);

/// Copies the owned elements away from tensors that were borrowed, into `memory` if it is large
/// enough: memory that was used before costs no page faults. Not collective. Throws std::bad_alloc.
void copy_slices(StagedCheckpoint& staged, AlignedBuffer memory);

/// Not collective, no communication. Never throws: the error is agreed at commit.
/// `pace` limits the speed.
WrittenShard write_staged_shard(const StagedCheckpoint& staged, WritePace* pace = nullptr) noexcept;

/// Collective. Returns the published folder. Throws the same error on all ranks;
/// then nothing was published.
std::filesystem::path commit_checkpoint(const StagedCheckpoint& staged, const WrittenShard& written,
                                        Communicator& world);

/// Collective: all three stages at once, nothing copied.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, std::int64_t step,
                                      const StateDict& state, Communicator& world,
                                      const SaveOptions& options);

}  // namespace trireme
