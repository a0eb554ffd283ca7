#include "checkpoint/exchange/whole_directory.hpp"

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/format/folder.hpp"
#include "comm/agree.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/process/failpoints.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

void check_absent(const fs::path& target) {
  std::error_code ignored;  // a path that cannot be read cannot be created either
  if (fs::exists(fs::symlink_status(target, ignored)))
    fail(ErrorKind::usage, "{} exists already: choose another --output or remove it",
         target.string());
}

}  // namespace

fs::path without_slash(const fs::path& directory) {
  return directory.has_filename() ? directory : directory.parent_path();
}

Fd claim_temporary(const fs::path& temporary, const fs::path& target) {
  check_absent(target);
  make_directories(temporary);
  std::optional<Fd> lock = lock_directory(temporary);
  if (!lock)
    fail(ErrorKind::usage, "another export is writing {}; wait for it, or choose another --output",
         target.string());
  check_absent(target);  // another export may have finished before the lock
  for (const fs::path& left : list_directory(temporary)) remove_tree(left);
  return std::move(*lock);
}

namespace {

using WrittenTensors = std::map<std::string, std::shared_ptr<const SafetensorsFile>>;

void check_written(const SafetensorsFile& file, const SafetensorsSource& source,
                   const std::filesystem::path& where) {
  const SafetensorsEntry& entry = file.entries().at(source.name);
  std::vector<std::byte> wanted(entry.end - entry.begin);
  std::vector<std::byte> found(wanted.size());
  source.fill(wanted);
  if (source.dtype == DType::f16) check_f16_range(source.name, wanted);
  file.read(source.name, found);
  if (failpoint_triggered("export.read_back")) found.front() ^= std::byte{1};
  if (entry.dtype != source.dtype || entry.shape != source.shape || found != wanted) {
    fail(ErrorKind::resource,
         "{}: tensor {} differs from the written data; check the disk and memory of this machine",
         where.string(), source.name);
  }
}

/// Compares all tensors, split over the ranks. Each rank opens the files once. Collective.
void check_all(const std::filesystem::path& where, std::span<const SafetensorsSource> sources,
               comm::Communicator& world, const std::function<WrittenTensors()>& open) {
  std::vector<std::uint64_t> sizes;
  for (const SafetensorsSource& source : sources) {
    sizes.push_back(static_cast<std::uint64_t>(std::accumulate(
        source.shape.begin(), source.shape.end(), std::int64_t{1}, std::multiplies<>())));
  }
  WrittenTensors written;
  comm::distribute_work(world, sizes, [&](std::size_t i) {
    if (written.empty()) written = open();
    check_written(*written.at(sources[i].name), sources[i], where);
    return std::string();
  });
}

}  // namespace

void write_whole_directory(const fs::path& directory, comm::Communicator& world,
                           const std::function<void(const fs::path&)>& write) {
  const fs::path target = without_slash(directory);
  const fs::path temporary =
      target.parent_path() / formatted(".tmp-{}", target.filename().string());
  std::optional<Fd> claim;  // rank 0 holds it for all ranks
  comm::on_first_rank(world, [&] { claim = claim_temporary(temporary, target); });
  const auto error = comm::capture([&] {
    write(temporary);
    comm::on_first_rank(world, [&] {
      sync_directory(temporary);
      publish(temporary, target);
    });
  });
  if (!error) return;
  std::error_code ignored;
  if (world.rank() == 0) fs::remove_all(temporary, ignored);
  throw Error(error->kind(), error->what());
}

void write_checked_file(const std::filesystem::path& path,
                        std::span<const SafetensorsSource> sources, comm::Communicator& world) {
  write_safetensors(path, sources, world);
  check_all(path, sources, world, [&] {
    const auto file = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path));
    WrittenTensors written;
    for (const auto& [name, entry] : file->entries()) written.emplace(name, file);
    return written;
  });
}

void write_checked_directory(const std::filesystem::path& directory,
                             std::span<const SafetensorsSource> sources, comm::Communicator& world,
                             std::uint64_t max_file_bytes) {
  write_safetensors_directory(directory, sources, world, max_file_bytes);
  check_all(directory, sources, world, [&] { return open_safetensors_directory(directory); });
}

}  // namespace trireme::checkpoint
