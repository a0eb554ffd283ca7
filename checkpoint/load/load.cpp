#include "checkpoint/load/load.hpp"

#include <algorithm>

#include "checkpoint/disk/disk_reader.hpp"
#include "checkpoint/load/replicas.hpp"
#include "checkpoint/load/slice_reader.hpp"
#include "comm/agree.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::uint64_t kMaxCarriedBytes = std::uint64_t{1} << 30;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return formatted("[{}]", joined(shape, ", "));
}

/// Flags the tensors of the checkpoint (in name order) that this rank requests, and lists
/// mismatches.
struct WantedTensors {
  std::vector<std::uint8_t> flags;
  std::string problems;
};

WantedTensors compare(const CheckpointManifest& manifest, const StateDict& into) {
  WantedTensors wanted{std::vector<std::uint8_t>(manifest.tensors.size()), ""};
  for (const StateTensor& tensor : into.tensors) {
    const auto found = manifest.tensors.find(tensor.name);
    if (found == manifest.tensors.end()) {
      wanted.problems += formatted("\n  missing: {}", tensor.name);
      continue;
    }
    const SavedTensor& saved = found->second;
    if (saved.dtype != tensor.dtype || saved.shape != tensor.shape) {
      wanted.problems += formatted("\n  {}: saved as {} {}, required as {} {}", tensor.name,
                                   dtype_name(saved.dtype), shape_text(saved.shape),
                                   dtype_name(tensor.dtype), shape_text(tensor.shape));
    }
    wanted.flags[static_cast<std::size_t>(std::distance(manifest.tensors.begin(), found))] = 1;
  }
  return wanted;
}

std::string extra_tensors(const CheckpointManifest& manifest,
                          const std::vector<std::uint8_t>& flags, const LoadOptions& options) {
  std::string problems;
  std::size_t index = 0;
  for (const auto& [name, tensor] : manifest.tensors) {
    const bool used = flags[index++] != 0;
    const bool ignored = std::any_of(options.may_ignore.begin(), options.may_ignore.end(),
                                     [&tensor_name = name](const std::string& prefix) {
                                       return tensor_name.starts_with(prefix);
                                     });
    if (!used && !ignored) problems += formatted("\n  extra: {}", name);
  }
  return problems;
}

void raise(const Checkpoint& checkpoint, const std::string& problems) {
  if (!problems.empty()) {
    fail(ErrorKind::data, "{} does not fit this run's tensors:{}", checkpoint.path().string(),
         problems);
  }
}

/// Returns a job for each slice of every requested tensor.
std::vector<SliceJob> plan(const CheckpointManifest& manifest, const StateDict& into) {
  std::map<std::string, std::vector<ReadTarget>> targets;
  for (const StateTensor& tensor : into.tensors) {
    TRIREME_ASSERT(tensor.bytes.size() ==
                   static_cast<std::size_t>(tensor.slice.count()) * size_of(tensor.dtype));
    targets[tensor.name].push_back({tensor.slice, tensor.bytes});
  }
  std::vector<SliceJob> jobs;
  for (const auto& [name, parts] : targets) {
    const auto& saved = *manifest.tensors.find(name);
    for (const SavedSlice& slice : saved.second.slices)
      jobs.push_back({&saved.first, &saved.second, &slice, parts});
  }
  return jobs;
}

void read_tensors(const Checkpoint& checkpoint, const StateDict& into) {
  read_slices(checkpoint.path(), checkpoint.manifest(), plan(checkpoint.manifest(), into));
}

}  // namespace

Checkpoint Checkpoint::open(const std::filesystem::path& directory) {
  if (std::error_code code; std::filesystem::is_symlink(directory, code)) {
    fail(ErrorKind::data, "{} is a symbolic link, which is not followed", directory.string());
  }
  const std::filesystem::path path = directory / kManifestName;
  Checkpoint checkpoint;
  checkpoint.path_ = directory;
  checkpoint.manifest_ = parse_manifest(read_regular(path, kMaxManifestBytes), path.string());
  const std::int64_t named = step_of_directory_name(directory.filename().string());
  if (named >= 0 && named != checkpoint.step()) {
    fail(ErrorKind::data, "{}: belongs to step {}, not to this directory", path.string(),
         checkpoint.step());
  }
  return checkpoint;
}

Checkpoint Checkpoint::open(const std::filesystem::path& directory, comm::Communicator& world) {
  Checkpoint checkpoint;
  const std::string text = comm::text_of_first_rank(world, [&] {
    checkpoint = open(directory);
    return world.size() == 1 ? "" : manifest_text(checkpoint.manifest_);
  });
  if (world.rank() == 0) return checkpoint;
  checkpoint.path_ = directory;
  checkpoint.manifest_ = parse_manifest(text, (directory / kManifestName).string());
  return checkpoint;
}

bool Checkpoint::has_file(const std::string& name) const noexcept {
  return std::any_of(manifest_.files.begin(), manifest_.files.end(),
                     [&](const SavedFile& file) { return file.name == name; });
}

std::string Checkpoint::file(const std::string& name) const {
  const auto found = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                  [&](const SavedFile& file) { return file.name == name; });
  if (found == manifest_.files.end())
    fail(ErrorKind::data, "{} holds no file {}", path_.string(), name);
  (void)open_recorded(path_, *found);
  const std::string content = read_regular(path_ / name, kMaxCarriedBytes);
  if (xxh3_128_hex(content) != found->hash)
    fail(ErrorKind::data, "{} is damaged: its hash differs", (path_ / name).string());
  return content;
}

Checkpoint Checkpoint::with_ema_weights() const {
  constexpr std::string_view kEma = "optim/ema/";
  Checkpoint other = *this;
  std::map<std::string, SavedTensor>& tensors = other.manifest_.tensors;
  bool has_ema = false;
  for (const auto& [name, tensor] : manifest_.tensors) {
    if (!name.starts_with(kEma)) continue;
    has_ema = true;
    tensors.erase(name);
    tensors[cat("param/", name.substr(kEma.size()))] = tensor;
  }
  if (!has_ema)
    fail(ErrorKind::usage, "{} has no EMA of the weights: its run has train.ema_decay = 0",
         path_.string());
  return other;
}

std::vector<std::byte> Checkpoint::read_logical(const std::string& name) const {
  const auto found = manifest_.tensors.find(name);
  if (found == manifest_.tensors.end())
    fail(ErrorKind::data, "{} holds no tensor {}", path_.string(), name);
  const SavedTensor& tensor = found->second;
  std::uint64_t available = 0;  // a hostile shape must not allocate more than the files hold
  for (const SavedFile& shard : manifest_.shards) {
    (void)open_recorded(path_, shard);
    available += shard.bytes;
  }
  const auto count = static_cast<std::uint64_t>(tensor.count());
  if (count > available / size_of(tensor.dtype))
    fail(ErrorKind::data, "{}: {} is larger than its shards", path_.string(), name);
  std::vector<std::byte> bytes(count * size_of(tensor.dtype));
  const ReadTarget target{parallel::Slice::whole(tensor.shape), bytes};
  std::vector<SliceJob> jobs;
  for (const SavedSlice& slice : tensor.slices) jobs.push_back({&name, &tensor, &slice, {target}});
  read_slices(path_, manifest_, std::move(jobs));
  return bytes;
}

void load_tensors(const Checkpoint& checkpoint, StateDict& into, const LoadOptions& options) {
  const WantedTensors wanted = compare(checkpoint.manifest(), into);
  raise(checkpoint, wanted.problems + extra_tensors(checkpoint.manifest(), wanted.flags, options));
  read_tensors(checkpoint, into);
  into.values = checkpoint.manifest().values;
}

void load_tensors(const Checkpoint& checkpoint, StateDict& into, comm::Communicator& world,
                  const LoadOptions& options) {
  comm::check_equal(world, manifest_text(checkpoint.manifest()), "the checkpoint to load");
  WantedTensors wanted = compare(checkpoint.manifest(), into);
  world
      .all_reduce({.input = wanted.flags.data(),
                   .output = wanted.flags.data(),
                   .count = wanted.flags.size(),
                   .dtype = DType::u8,
                   .op = comm::ReduceOp::max,
                   .tag = "wanted tensors"})
      ->wait();
  comm::agree(world, comm::capture([&] {
                raise(checkpoint, wanted.problems +
                                      extra_tensors(checkpoint.manifest(), wanted.flags, options));
              }));
  Replicas replicas(checkpoint.manifest(), into, world);
  comm::agree(world, comm::capture([&] { read_tensors(checkpoint, replicas.to_read()); }));
  replicas.exchange();
  into.values = checkpoint.manifest().values;
}

}  // namespace trireme::checkpoint
