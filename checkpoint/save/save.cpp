#include "checkpoint/save/save.hpp"

#include <algorithm>

#include "checkpoint/format/cover.hpp"
#include "comm/agree.hpp"
#include "comm/share.hpp"
#include "core/hash/xxh3.hpp"
#include "core/process/failpoints.hpp"
#include "core/progress.hpp"

namespace trireme::checkpoint {
namespace {

void check_tensor(const StateTensor& tensor) {
  if (!is_tensor_name(tensor.name))
    fail(ErrorKind::internal, "tensor name '{}' cannot be saved", tensor.name);
  const parallel::Slice& part = tensor.slice;
  const std::size_t num_bytes = static_cast<std::size_t>(part.count()) * size_of(tensor.dtype);
  const bool good =
      lies_inside(tensor.shape, part) && tensor.bytes.size() == (tensor.produce ? 0 : num_bytes);
  if (!good)
    fail(ErrorKind::internal, "tensor {}: its slice or its bytes do not fit its shape",
         tensor.name);
}

std::vector<SliceToWrite> owned_slices(const StateDict& state) {
  std::vector<SliceToWrite> slices;
  for (const StateTensor& tensor : state.tensors) {
    check_tensor(tensor);
    // A tensor without elements is still named in the manifest.
    const bool empty = parallel::Slice::whole(tensor.shape).count() == 0;
    if (tensor.owner && (empty || tensor.slice.count() > 0)) {
      slices.push_back(
          {tensor.name, tensor.dtype, tensor.shape, tensor.slice, tensor.bytes, tensor.produce});
    }
  }
  return slices;
}

void check_files(const StateDict& state, const SaveOptions& options) {
  if (!is_plain_name(options.run_id))
    fail(ErrorKind::internal, "run id '{}' is not a plain name", options.run_id);
  for (const auto& [name, content] : state.files) {
    const bool reserved = name == kManifestName || name.starts_with("shard-");
    if (!is_plain_name(name) || reserved)
      fail(ErrorKind::internal, "file name '{}' cannot be saved", name);
  }
}

/// Returns one text of everything that must be equal on all ranks.
std::string common_text(const StagedCheckpoint& staged) {
  CheckpointManifest common;
  common.run_id = staged.identity.run_id;
  common.step = staged.identity.step;
  common.values = staged.whole.values;
  for (const auto& [name, content] : staged.whole.files)
    common.files.push_back({name, content.size(), xxh3_128_hex(content)});
  return manifest_part_text(common);
}

}  // namespace

std::vector<StateTensor> share_of_rank(std::vector<StateTensor> tensors,
                                       const comm::Communicator& world) {
  std::vector<std::uint64_t> num_bytes;
  for (const StateTensor& tensor : tensors)
    num_bytes.push_back(static_cast<std::uint64_t>(tensor.slice.count()) * size_of(tensor.dtype));
  const std::vector<int> owners = comm::owners_by_bytes(num_bytes, world.size());
  std::vector<StateTensor> own;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (owners[i] == world.rank()) own.push_back(std::move(tensors[i]));
  return own;
}

void copy_slices(StagedCheckpoint& staged, AlignedBuffer memory) {
  std::size_t total = 0;
  for (const SliceToWrite& slice : staged.slices) total += slice.num_bytes();
  if (memory.size() < total) memory = AlignedBuffer(total);
  staged.arena = std::move(memory);
  std::byte* next = staged.arena.data();
  for (SliceToWrite& slice : staged.slices) {
    const std::span<std::byte> copy(next, slice.num_bytes());
    if (slice.produce) {
      slice.produce(copy);
    } else {  // memcpy does not allow the null of an empty slice
      std::ranges::copy(slice.bytes, copy.begin());
    }
    slice.bytes = copy;
    slice.produce = nullptr;
    next += copy.size();
  }
}

StagedCheckpoint stage_checkpoint(const std::filesystem::path& directory, std::int64_t step,
                                  const StateDict& state, comm::Communicator& world,
                                  const SaveOptions& options) {
  StagedCheckpoint staged;
  const auto error = comm::capture([&] {
    failpoint("checkpoint.stage");
    check_files(state, options);
    staged.whole = {directory,      directory / (".tmp-" + step_directory_name(step)),
                    options.run_id, step,
                    state.values,   state.files};
    staged.identity = {options.run_id, step, world.rank(), world.size()};
    staged.slices = owned_slices(state);
    if (options.copy) copy_slices(staged, {});
    if (world.rank() == 0) make_temporary(staged.whole);
  });
  comm::agree(world, error);
  comm::check_equal(world, common_text(staged), "step, values or files of a checkpoint");
  return staged;
}

WrittenShard write_staged_shard(const StagedCheckpoint& staged,
                                WriteRateLimit* rate_limit) noexcept {
  WrittenShard written;
  written.error = comm::capture([&] {
    double bytes = 0;
    for (const SliceToWrite& slice : staged.slices) bytes += static_cast<double>(slice.num_bytes());
    Progress progress("save", bytes, Progress::Unit::bytes);
    written.part = write_shard_file(staged.whole.temporary, staged.identity, staged.slices,
                                    rate_limit, &progress);
  });
  return written;
}

std::filesystem::path commit_checkpoint(const StagedCheckpoint& staged, const WrittenShard& written,
                                        comm::Communicator& world) {
  std::optional<Error> failure;
  try {
    comm::agree(world, written.error);
    const std::vector<std::string> parts =
        comm::gather_texts(world, manifest_part_text(written.part));
    const auto error = comm::capture([&] {
      if (world.rank() != 0) return;
      std::vector<CheckpointManifest> parsed;
      for (const std::string& part : parts)
        parsed.push_back(parse_manifest_part(part, "a rank's part of the manifest"));
      publish_checkpoint(staged.whole, parsed);
    });
    comm::agree(world, error);
  } catch (const Error& error) {
    failure = error;
  }
  if (!failure) return staged.whole.directory / step_directory_name(staged.identity.step);
  // After agree, no rank writes any more. If a peer has died instead, the next owner removes the
  // leftovers.
  if (world.rank() == 0 && failure->kind() != ErrorKind::comm) {
    std::error_code ignored;
    std::filesystem::remove_all(staged.whole.temporary, ignored);
  }
  throw Error(failure->kind(), formatted("checkpoint of step {} is not saved: {}",
                                         staged.identity.step, failure->what()));
}

std::filesystem::path save_checkpoint(const std::filesystem::path& directory, std::int64_t step,
                                      const StateDict& state, comm::Communicator& world,
                                      const SaveOptions& options) {
  SaveOptions borrowed = options;
  borrowed.copy = false;
  const StagedCheckpoint staged = stage_checkpoint(directory, step, state, world, borrowed);
  return commit_checkpoint(staged, write_staged_shard(staged), world);
}

}  // namespace trireme::checkpoint
