#include "core/files/directories.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>

#include "core/files/refusal.hpp"

namespace trireme {

void make_directories(const std::filesystem::path& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!code && !std::filesystem::is_directory(folder, code) && !code)
    code = std::make_error_code(std::errc::not_a_directory);
  if (code) fail_to_write("make directory", folder, code.value());
}

void remove_tree(const std::filesystem::path& path) {
  std::error_code code;
  std::filesystem::remove_all(path, code);
  if (code) fail_to_write("delete", path, code.value());
}

bool lies_in(const std::filesystem::path& path, const std::filesystem::path& directory) {
  const std::filesystem::path inner = std::filesystem::weakly_canonical(path);
  const std::filesystem::path outer = std::filesystem::weakly_canonical(directory);
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

std::optional<Fd> lock_directory(const std::filesystem::path& folder, bool shared) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) fail_to_write("open directory", folder, errno);
  if (::flock(fd.get(), (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return std::nullopt;
  return fd;
}

}  // namespace trireme
