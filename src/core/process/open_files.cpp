#include "core/process/open_files.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace trireme {
namespace {

constexpr rlim_t kMostFiles = 65536;
/// Measured: a trainer on one node under MPI has 25 to 35 other files open.
constexpr rlim_t kFilesBesideShards = 40;
constexpr rlim_t kMostShards = 256;

}  // namespace

void raise_open_files_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMostFiles);  // RLIM_INFINITY is the largest value
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

std::size_t max_open_shards() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostShards;
  const rlim_t left = limit.rlim_cur - std::min(limit.rlim_cur, kFilesBesideShards);
  return std::clamp<rlim_t>(left / 3, 1, kMostShards);
}

}  // namespace trireme
