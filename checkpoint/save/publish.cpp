#include "checkpoint/save/publish.hpp"

#include <cerrno>

#include "checkpoint/format/folder.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "core/process/failpoints.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

void write_carried_files(const Unpublished& unpublished, CheckpointManifest& manifest) {
  for (const auto& [name, content] : unpublished.files) {
    failpoint("checkpoint.files");
    write_file_atomic(unpublished.temporary / name, content);
    manifest.files.push_back({name, content.size(), xxh3_128_hex(content)});
  }
}

/// Throws if a shard that another node wrote is not yet visible here or is too short: then it must
/// not be committed.
void check_shards_arrived(const Unpublished& unpublished, const CheckpointManifest& manifest) {
  for (const SavedFile& shard : manifest.shards) {
    std::error_code code;
    const auto size = std::filesystem::file_size(unpublished.temporary / shard.name, code);
    if (code || size != shard.bytes) {
      fail(ErrorKind::resource, "{}: {} bytes were written, but rank 0 sees {}",
           (unpublished.temporary / shard.name).string(), shard.bytes,
           code ? code.message() : cat(size));
    }
  }
}

/// Creates a directory and syncs its parents, so that a power cut cannot remove a committed
/// checkpoint in it.
void make_durable_folder(const fs::path& directory) {
  std::error_code code;
  if (fs::is_directory(directory, code)) return;
  if (directory.has_parent_path() && directory.parent_path() != directory)
    make_durable_folder(directory.parent_path());
  std::error_code ignored;
  if (!fs::create_directory(directory, code) && !fs::is_directory(directory, ignored))
    fail_to_write("create directory", directory, code ? code.value() : EEXIST);
  sync_directory(directory.parent_path());
}

}  // namespace

void make_temporary(const Unpublished& unpublished) {
  make_durable_folder(fs::absolute(unpublished.directory));
  std::error_code code;
  const fs::path target = unpublished.directory / step_directory_name(unpublished.step);
  if (fs::exists(fs::symlink_status(target, code))) {
    fail(ErrorKind::usage, "{} exists already; a committed checkpoint is never overwritten",
         target.string());
  }
  // Leftovers that cannot be deleted only cost space. If one is in the way, create_directory fails.
  if (const auto error = comm::capture([&] { remove_leftovers(unpublished.directory); }))
    log::warn(error->what());
  failpoint("checkpoint.mkdir");
  if (!fs::create_directory(unpublished.temporary, code))
    fail_to_write("create directory", unpublished.temporary, code ? code.value() : EEXIST);
}

fs::path publish_checkpoint(const Unpublished& unpublished,
                            const std::vector<CheckpointManifest>& parts) {
  failpoint("checkpoint.gathered");
  CheckpointManifest manifest;
  manifest.run_id = unpublished.run_id;
  manifest.step = unpublished.step;
  manifest.values = unpublished.values;
  for (const CheckpointManifest& part : parts) merge_manifest(manifest, part);
  write_carried_files(unpublished, manifest);
  if (const auto error = comm::capture([&] { check_manifest(manifest, "the state to save"); })) {
    throw Error(ErrorKind::internal, error->what());
  }
  check_shards_arrived(unpublished, manifest);
  failpoint("checkpoint.manifest");
  const std::string text = manifest_text(manifest);
  // A checkpoint that nobody can read must not replace a good one.
  if (const std::string problem = size_problem(text); !problem.empty()) {
    fail(
        ErrorKind::resource,
        "the checkpoint has too many slices, its manifest could not be read: {}. Save from fewer ranks, or with pipeline stages (parallel.pp), which divide the slices",
        problem);
  }
  write_file_atomic(unpublished.temporary / kManifestName, text);
  failpoint("checkpoint.manifest.written");
  sync_directory(unpublished.temporary);
  failpoint("checkpoint.publish");
  const std::string name = step_directory_name(manifest.step);
  publish(unpublished.temporary, unpublished.directory / name);
  failpoint("checkpoint.published");
  // `latest` is a hint for people and scripts; readers scan the directories. Therefore its failure
  // does not undo the commit.
  if (const auto error = comm::capture([&] {
        write_file_atomic(unpublished.directory / "latest",
                          formatted("{}\n{}\n", name, xxh3_128_hex(text)));
      })) {
    log::warn(formatted("checkpoint {} is saved, but {}", name, error->what()));
  }
  failpoint("checkpoint.done");
  return unpublished.directory / name;
}

}  // namespace trireme::checkpoint
