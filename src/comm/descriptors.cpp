#include "comm/descriptors.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <vector>

#include "core/error.hpp"
#include "core/files/file.hpp"

namespace trireme {

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
        "too few file descriptors to start MPI: this process may open {} more, {} are needed (the limit is {}; `ulimit -n 1024` before it raises that)",
        i, wanted, limit.rlim_cur);
  }
}

}  // namespace trireme
