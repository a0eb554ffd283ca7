#include "data_prep/input/inputs.hpp"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <set>
#include <sstream>

#include "comm/agree.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "data_prep/worker_pool.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kFingerprintBytes = 64 << 10;
constexpr std::size_t kHeadBytes = 512;

std::vector<std::string> files_of_folder(const std::string& directory) {
  std::vector<std::string> files;
  try {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      const bool wanted = std::ranges::any_of(input_formats(), [&](const InputFormat& format) {
        return name.ends_with(format.suffix);
      });
      if (wanted && entry.is_regular_file()) files.push_back(entry.path().string());
    }
  } catch (const std::filesystem::filesystem_error& error) {
    fail_to_read("list --input", directory, error.code().value());
  }
  if (files.empty()) {
    const auto formats = input_formats();
    const std::string others =
        joined(formats.first(formats.size() - 1), ", ", [](const auto& row) { return row.suffix; });
    fail(ErrorKind::data,
         "--input {}: no {} or {} in this directory. Other names, such as .json, must be given as "
         "files or as a pattern",
         directory, others, formats.back().suffix);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  errno = 0;
  const int code = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  const int aborted_by = errno;
  std::vector<std::string> files;
  if (code == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (code == GLOB_NOSPACE) fail(ErrorKind::resource, "--input {}: out of memory", pattern);
  if (code == GLOB_ABORTED) fail_to_read("list a directory of --input", pattern, aborted_by);
  if (files.empty()) fail(ErrorKind::data, "--input {}: no file matches this pattern", pattern);
  std::sort(files.begin(), files.end());  // sort bytewise, because glob sorts by the locale
  return files;
}

std::vector<std::string> files_of(const std::string& argument) {
  std::error_code ignored;
  if (std::filesystem::is_directory(argument, ignored)) return files_of_folder(argument);
  const bool pattern = argument.find_first_of("*?[") != std::string::npos;
  if (pattern && !std::filesystem::exists(argument, ignored)) return files_of_pattern(argument);
  return {argument};
}

/// Returns the inputs with `path` and `given`.
std::vector<InputFile> expand_inputs(const std::vector<std::string>& arguments) {
  std::vector<InputFile> files;
  std::set<std::filesystem::path> seen;
  for (const std::string& argument : arguments) {
    for (const std::string& file : files_of(argument)) {
      std::error_code code;
      InputFile input;
      input.path = std::filesystem::canonical(file, code);
      if (code) fail_to_read("open --input", file, code.value());
      if (!std::filesystem::is_regular_file(input.path, code))
        fail(ErrorKind::data, "--input {} is not a file; give files, directories or patterns",
             file);
      if (!seen.insert(input.path).second)
        fail(ErrorKind::usage, "--input {} is given twice", file);
      input.given = std::filesystem::absolute(file);
      files.push_back(std::move(input));
    }
  }
  if (files.empty()) fail(ErrorKind::usage, "--input names no file");
  return files;
}

std::filesystem::path common_folder(const std::vector<InputFile>& files) {
  std::filesystem::path common = files.front().path.parent_path();
  for (const InputFile& file : files) {
    const std::filesystem::path directory = file.path.parent_path();
    const auto mine =
        std::mismatch(common.begin(), common.end(), directory.begin(), directory.end()).first;
    std::filesystem::path shared;
    for (auto part = common.begin(); part != mine; ++part) shared /= *part;
    common = shared;
  }
  return common;
}

/// Sets all members except the paths and those that InputFormat::measure sets.
void look_at(InputFile& file, const std::filesystem::path& common) {
  const std::filesystem::path& path = file.path;
  file.name = path.lexically_relative(common).generic_string();
  file.packed_size = std::filesystem::file_size(path);
  file.size = file.packed_size;
  const Fd fd = open_read(path);
  Hasher hasher;
  std::string bytes(std::min(file.packed_size, kFingerprintBytes), '\0');
  for (const std::uint64_t offset : {std::uint64_t{0}, file.packed_size - bytes.size()}) {
    read_all(fd.get(), std::as_writable_bytes(std::span(bytes)), offset, path);
    hasher.update(bytes);
    if (offset == 0)
      file.format = &detect_format(path, std::string_view(bytes).substr(0, kHeadBytes));
  }
  if (file.format != &input_formats().front())
    hasher.update(formatted("{} of {}", file.format->name, file.packed_size));
  file.fingerprint = hasher.hex();
}

/// Runs `action`. With several ranks, all agree on its success, so that one of them reports an
/// error.
void run_agreed(comm::Communicator* world, const std::function<void()>& action) {
  world == nullptr ? action() : comm::all_or_none(*world, action);
}

/// Measures these files, the largest first, split over threads and ranks, and sends the measured
/// sizes and points to all ranks. Collective.
void measure(const std::vector<std::size_t>& chosen, std::int64_t threads,
             comm::Communicator* world, std::vector<InputFile>& files) {
  std::vector<std::uint64_t> sizes;
  for (const std::size_t i : chosen) sizes.push_back(files[i].packed_size);
  run_agreed(world, [&] {
    const std::vector<int> owners =
        comm::owners_by_bytes(sizes, world == nullptr ? 1 : world->size());
    std::vector<InputFile*> mine;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      InputFile& file = files[chosen[i]];
      const bool is_mine = owners[i] == (world == nullptr ? 0 : world->rank());
      if (is_mine && file.format->measure != nullptr) mine.push_back(&file);
    }
    if (mine.empty()) return;
    std::ranges::stable_sort(mine, std::greater(), &InputFile::packed_size);
    WorkerPool pool(
        static_cast<int>(std::min(mine.size(), static_cast<std::size_t>(thread_count(threads)))));
    pool.run(
        mine.size(), [&](std::size_t i, int) { mine[i]->format->measure(*mine[i]); }, [] {});
  });
  if (world == nullptr) return;
  const auto texts = comm::distribute_work(*world, sizes, [&](std::size_t i) {
    std::string text = std::to_string(files[chosen[i]].size);
    for (const AccessPoint& point : files[chosen[i]].points)
      text += formatted(" {} {}", point.offset, point.packed);
    return text;
  });
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    InputFile& file = files[chosen[i]];
    std::istringstream text(texts[i]);
    text >> file.size;
    file.points.clear();
    for (AccessPoint point; text >> point.offset >> point.packed;) file.points.push_back(point);
  }
}

}  // namespace

std::vector<InputFile> inspect_inputs(const std::vector<std::string>& arguments,
                                      std::int64_t threads, comm::Communicator* world) {
  std::vector<InputFile> files;
  std::vector<std::size_t> all;
  run_agreed(world, [&] {
    files = expand_inputs(arguments);
    const std::filesystem::path common = common_folder(files);
    for (std::size_t i = 0; i < files.size(); ++i) {
      all.push_back(i);
      look_at(files[i], common);
    }
  });
  measure(all, threads, world, files);
  return files;
}

std::vector<InputFile> inspect_records(const std::vector<std::string>& arguments,
                                       std::int64_t threads, comm::Communicator* world) {
  std::vector<InputFile> files = inspect_inputs(arguments, threads, world);
  std::vector<std::size_t> changed;
  run_agreed(world, [&] {
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto by_content = files[i].format->by_content;
      const InputFormat* format = by_content == nullptr ? nullptr : by_content(files[i]);
      if (format == nullptr) continue;
      files[i].format = format;
      changed.push_back(i);
    }
  });
  if (!changed.empty()) measure(changed, threads, world, files);
  return files;
}

}  // namespace trireme::data_prep
