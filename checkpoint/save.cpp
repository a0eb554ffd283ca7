#include "checkpoint/save.hpp"

#include <algorithm>

#include "checkpoint/agree.hpp"
#include "checkpoint/folder.hpp"
#include "core/failpoints.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"

namespace trireme {
namespace {

void check_tensor(const StateTensor& tensor) {
  if (!is_tensor_name(tensor.name))
    fail(ErrorKind::internal, "tensor name '", tensor.name, "' cannot be saved");
  const Shard& part = tensor.shard;
  bool good =
      part.offset.size() == tensor.shape.size() && part.extent.size() == tensor.shape.size();
  for (std::size_t dim = 0; good && dim < tensor.shape.size(); ++dim) {
    good = part.offset[dim] >= 0 && part.extent[dim] >= 0 &&
           part.offset[dim] + part.extent[dim] <= tensor.shape[dim];
  }
  good = good && 0 <= part.flat_begin && part.flat_begin <= part.flat_end &&
         part.flat_end <= part.rectangle_count() &&
         tensor.bytes.size() == static_cast<std::size_t>(part.count()) * size_of(tensor.dtype);
  if (!good)
    fail(ErrorKind::internal,
         "tensor ",
         tensor.name,
         ": its shard or its bytes do not fit its shape");
}

std::vector<SliceToWrite> owned_slices(const StateDict& state) {
  std::vector<SliceToWrite> slices;
  for (const StateTensor& tensor : state.tensors) {
    check_tensor(tensor);
    // A tensor without elements is still named in the manifest.
    const bool empty = Shard::whole(tensor.shape).count() == 0;
    if (tensor.owner && (empty || tensor.shard.count() > 0)) {
      slices.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.shard, tensor.bytes});
    }
  }
  return slices;
}

void copy_slices(StagedCheckpoint& staged) {
  std::size_t total = 0;
  for (const SliceToWrite& slice : staged.slices) total += slice.bytes.size();
  staged.arena = std::make_unique_for_overwrite<std::byte[]>(total);
  std::byte* next = staged.arena.get();
  for (SliceToWrite& slice : staged.slices) {
    std::copy(
        slice.bytes.begin(), slice.bytes.end(), next);  // memcpy may not see an empty slice's null
    slice.bytes = {next, slice.bytes.size()};
    next += slice.bytes.size();
  }
}

void check_files(const StateDict& state, const SaveOptions& options) {
  if (!is_plain_name(options.run_id))
    fail(ErrorKind::internal, "run id '", options.run_id, "' is not a plain name");
  for (const auto& [name, content] : state.files) {
    const bool reserved = name == kManifestName || name.starts_with("shard-");
    if (!is_plain_name(name) || reserved)
      fail(ErrorKind::internal, "file name '", name, "' cannot be saved");
  }
}

void prepare_folder(const StagedCheckpoint& staged) {
  namespace fs = std::filesystem;
  std::error_code code;
  fs::create_directories(staged.folder, code);
  if (code)
    fail(
        ErrorKind::resource, "cannot create folder ", staged.folder.string(), ": ", code.message());
  const fs::path target = staged.folder / step_folder_name(staged.identity.step);
  if (fs::exists(fs::symlink_status(target))) {
    fail(ErrorKind::usage,
         target.string(),
         " exists already; a committed checkpoint is never overwritten");
  }
  remove_leftovers(staged.folder);
  failpoint("checkpoint.mkdir");
  if (!fs::create_directory(staged.temporary, code) || code) {
    fail(ErrorKind::resource,
         "cannot create folder ",
         staged.temporary.string(),
         ": ",
         code.message());
  }
}

/// Everything that must be the same on all ranks, as one text.
std::string common_text(const StagedCheckpoint& staged) {
  CheckpointManifest common;
  common.run_id = staged.identity.run_id;
  common.step = staged.identity.step;
  common.values = staged.values;
  for (const auto& [name, content] : staged.files)
    common.files.push_back({name, content.size(), xxh3_128_hex(content)});
  return manifest_part_text(common);
}

void write_carried_files(const StagedCheckpoint& staged, CheckpointManifest& manifest) {
  for (const auto& [name, content] : staged.files) {
    failpoint("checkpoint.files");
    write_file_atomic(staged.temporary / name, content);
    manifest.files.push_back({name, content.size(), xxh3_128_hex(content)});
  }
}

/// A shard that another node wrote may not be visible here yet, or be short: then it must not be
/// committed.
void check_shards_arrived(const StagedCheckpoint& staged, const CheckpointManifest& manifest) {
  for (const SavedFile& shard : manifest.shards) {
    std::error_code code;
    const auto size = std::filesystem::file_size(staged.temporary / shard.name, code);
    if (code || size != shard.bytes) {
      fail(ErrorKind::resource,
           (staged.temporary / shard.name).string(),
           ": ",
           shard.bytes,
           " bytes were written, ",
           code ? code.message() : cat(size),
           " seen by rank 0");
    }
  }
}

/// Rank 0: from the parts of all ranks to the published folder.
void publish_checkpoint(const StagedCheckpoint& staged, const std::vector<std::string>& parts) {
  failpoint("checkpoint.gathered");
  CheckpointManifest manifest;
  manifest.run_id = staged.identity.run_id;
  manifest.step = staged.identity.step;
  manifest.values = staged.values;
  for (const std::string& part : parts)
    merge_manifest(manifest, parse_manifest_part(part, "a rank's part of the manifest"));
  write_carried_files(staged, manifest);
  if (const auto error = capture([&] { check_manifest(manifest, "the state to save"); })) {
    throw Error(ErrorKind::internal, error->what());
  }
  check_shards_arrived(staged, manifest);
  failpoint("checkpoint.manifest");
  const std::string text = manifest_text(manifest);
  write_file_atomic(staged.temporary / kManifestName, text);
  failpoint("checkpoint.manifest.written");
  sync_folder(staged.temporary);
  failpoint("checkpoint.publish");
  const std::string name = step_folder_name(manifest.step);
  publish(staged.temporary, staged.folder / name);
  failpoint("checkpoint.published");
  // A hint for people and scripts; readers scan the folders. So its failure does not undo the
  // commit.
  if (const auto error = capture([&] {
        write_file_atomic(staged.folder / "latest", cat(name, "\n", xxh3_128_hex(text), "\n"));
      })) {
    log::warn(cat("checkpoint ", name, " is saved, but ", error->what()));
  }
  failpoint("checkpoint.done");
}

}  // namespace

StagedCheckpoint stage_checkpoint(const std::filesystem::path& folder,
                                  std::int64_t step,
                                  const StateDict& state,
                                  Communicator& world,
                                  const SaveOptions& options) {
  StagedCheckpoint staged;
  const auto error = capture([&] {
    failpoint("checkpoint.stage");
    check_files(state, options);
    staged.folder = folder;
    staged.temporary = folder / (".tmp-" + step_folder_name(step));
    staged.identity = {options.run_id, step, world.rank(), world.size()};
    staged.values = state.values;
    staged.files = state.files;
    staged.slices = owned_slices(state);
    if (options.copy) copy_slices(staged);
    if (world.rank() == 0) prepare_folder(staged);
  });
  agree(world, error);
  check_equal(world, common_text(staged), "step, values or files of a checkpoint");
  return staged;
}

WrittenShard write_staged_shard(const StagedCheckpoint& staged) noexcept {
  WrittenShard written;
  written.error = capture(
      [&] { written.part = write_shard_file(staged.temporary, staged.identity, staged.slices); });
  return written;
}

std::filesystem::path commit_checkpoint(const StagedCheckpoint& staged,
                                        const WrittenShard& written,
                                        Communicator& world) {
  std::optional<Error> failure;
  try {
    agree(world, written.error);
    const std::vector<std::string> parts = gather_texts(world, manifest_part_text(written.part));
    const auto error = capture([&] {
      if (world.rank() == 0) publish_checkpoint(staged, parts);
    });
    agree(world, error);
  } catch (const Error& error) {
    failure = error;
  }
  if (!failure) return staged.folder / step_folder_name(staged.identity.step);
  // After agree no rank writes any more. If a peer is gone instead, its next owner clears the
  // leftovers.
  if (world.rank() == 0 && failure->kind() != ErrorKind::comm) {
    std::error_code ignored;
    std::filesystem::remove_all(staged.temporary, ignored);
  }
  throw Error(failure->kind(),
              cat("checkpoint of step ", staged.identity.step, " is not saved: ", failure->what()));
}

std::filesystem::path save_checkpoint(const std::filesystem::path& folder,
                                      std::int64_t step,
                                      const StateDict& state,
                                      Communicator& world,
                                      const SaveOptions& options) {
  SaveOptions borrowed = options;
  borrowed.copy = false;
  const StagedCheckpoint staged = stage_checkpoint(folder, step, state, world, borrowed);
  return commit_checkpoint(staged, write_staged_shard(staged), world);
}

}  // namespace trireme
