#include "comm/descriptors.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <vector>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::comm {
namespace {

/// Returns the number of open files and sockets of this process; 0 if unknown.
std::uint64_t open_descriptors() {
  std::error_code unknown;
  const std::filesystem::directory_iterator all("/proc/self/fd", unknown);
  return unknown ? 0 : static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
}

}  // namespace

void require_descriptors(int wanted) {
  std::vector<Fd> opened;
  for (int i = 0; i < wanted; ++i) {
    opened.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (opened.back() || (errno != EMFILE && errno != ENFILE)) continue;
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    opened.clear();
    fail(
        ErrorKind::resource,
        "too few file descriptors to start MPI: this process may open {} more, {} are needed (the limit is {}; run `ulimit -n 1024` first to raise it)",
        i, wanted, limit.rlim_cur);
  }
}

void raise_descriptor_limit(std::uint64_t needed, std::uint64_t spare, std::string_view what) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const std::uint64_t open = open_descriptors();
  if (limit.rlim_cur < open + needed + spare) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, open + needed + spare);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= open + needed) return;
  fail(
      ErrorKind::resource,
      "{}: {} more open files are needed, {} are open and the hard limit is {}; raise it (`ulimit -Hn`, {}) or start fewer ranks",
      what, needed, open, limit.rlim_max, scheduler::scheduler().words().open_files_advice);
}

}  // namespace trireme::comm
