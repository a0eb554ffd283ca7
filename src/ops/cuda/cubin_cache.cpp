#include "ops/cuda/cubin_cache.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"

namespace trireme::ops::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 32;

/// Returns the payload of a file: 32 digits of its hash, a line break, the payload.
std::optional<std::string> read_valid(const fs::path& path) {
  std::error_code code;
  if (!fs::is_regular_file(path, code)) return std::nullopt;
  try {
    const std::string content = read_file(path);
    if (content.size() <= kHashDigits || content[kHashDigits] != '\n') return std::nullopt;
    std::string payload = content.substr(kHashDigits + 1);
    if (xxh3_128_hex(payload) != std::string_view(content).substr(0, kHashDigits))
      return std::nullopt;
    return payload;
  } catch (const Error&) {
    return std::nullopt;  // it was removed meanwhile, or it cannot be read
  }
}

/// Writes a file under a temporary name that is unique on all nodes, then renames it.
void write_whole(const fs::path& path, const std::string& content) {
  std::string temporary = path.string() + ".tmp.XXXXXX";
  const Fd fd(::mkstemp(temporary.data()));
  if (!fd) fail(ErrorKind::resource, "cannot create {}: {}", temporary, std::strerror(errno));
  try {
    write_all(fd.get(), std::as_bytes(std::span(content)), 0, temporary);
    fs::rename(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

/// Returns an error text, or "" if the file was written.
std::string try_to_write(const fs::path& directory, const std::string& name,
                         const std::string& content) {
  try {
    fs::create_directories(directory);
    write_whole(directory / name, content);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Returns the user's directory under the directory for temporary files, or "" if it belongs to
/// somebody else, who could place programs there.
fs::path own_temporary_directory() {
  std::error_code code;
  const fs::path path =
      fs::temp_directory_path(code) / formatted("trireme-kernels-{}", ::geteuid());
  if (code) return {};
  ::mkdir(path.c_str(), 0700);

  struct stat status {};

  const bool is_own = ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                      status.st_uid == ::geteuid() && (status.st_mode & 0022) == 0;
  return is_own ? path : fs::path{};
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<fs::path> cache_directories() {
  std::vector<fs::path> directories;
  const std::string named = variable("TRIREME_KERNEL_CACHE");
  const std::string cache = variable("XDG_CACHE_HOME");
  const std::string home = variable("HOME");
  if (!named.empty()) {
    directories.emplace_back(named);
  } else if (!cache.empty()) {
    directories.push_back(fs::path(cache) / "trireme" / "kernels");
  } else if (!home.empty()) {
    directories.push_back(fs::path(home) / ".cache" / "trireme" / "kernels");
  }
  if (const fs::path own = own_temporary_directory(); !own.empty()) directories.push_back(own);
  return directories;
}

std::string read_or_make(const std::vector<fs::path>& directories, const std::string& name,
                         const std::function<std::string()>& make) {
  for (const fs::path& directory : directories) {
    if (auto payload = read_valid(directory / name)) return *std::move(payload);
  }
  std::string payload = make();
  const std::string content = xxh3_128_hex(payload) + '\n' + payload;
  std::string first_error;
  for (const fs::path& directory : directories) {
    const std::string error = try_to_write(directory, name, content);
    if (first_error.empty()) first_error = error;
    if (error.empty()) break;
  }
  static std::atomic<bool> has_warned{false};
  if (!first_error.empty() && !has_warned.exchange(true))
    log::warn(
        formatted("compiled kernels cannot be stored in {} ({}). Set TRIREME_KERNEL_CACHE to a "
                  "directory that can be written.",
                  directories.front().string(), first_error));
  return payload;
}

}  // namespace trireme::ops::cuda
