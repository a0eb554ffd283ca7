#include "comm/shared/shared_window.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>

#include "core/error.hpp"
#include "core/process/machine_memory.hpp"

namespace trireme::comm {
namespace {

constexpr std::uint64_t kPage = 4096;  // the token's page; a multiple of every cache line

[[noreturn]] void window_refused(const char* call, std::uint64_t bytes, int error) {
  fail(ErrorKind::resource, "shared memory of {} bytes: {}: {}", bytes, call,
       std::generic_category().message(error));
}

/// Refuses sizes for which the system would end the process with a signal.
void check_window_size(std::uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && kPage + bytes > limit.rlim_cur)
    fail(ErrorKind::resource, "shared memory of {} bytes: the limit of file sizes is {}", bytes,
         limit.rlim_cur);
  const double available = machine_memory().available;
  if (static_cast<double>(bytes) > available)
    fail(ErrorKind::resource, "shared memory of {} bytes: this machine has {} bytes available",
         bytes, static_cast<std::uint64_t>(available));
}

std::uint64_t random_token() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

/// Like posix_fallocate, but a signal does not end it.
int allocate(int file, std::uint64_t begin, std::uint64_t size) {
  int error = 0;
  do {
    error = ::posix_fallocate(file, static_cast<off_t>(begin), static_cast<off_t>(size));
  } while (error == EINTR);
  return error;
}

}  // namespace

SharedWindow::SharedWindow(std::uint64_t bytes)
    : name_{.process = ::getpid(), .token = random_token(), .bytes = bytes} {
  check_window_size(bytes);
  file_.reset(::memfd_create("trireme", MFD_CLOEXEC));
  if (!file_) window_refused("memfd_create", bytes, errno);
  name_.descriptor = file_.get();
  if (::ftruncate(file_.get(), static_cast<off_t>(kPage + bytes)) != 0)
    window_refused("ftruncate", bytes, errno);
  if (const int error = allocate(file_.get(), 0, kPage); error != 0)
    window_refused("posix_fallocate", bytes, error);
  map();
  std::memcpy(mapped_, &name_.token, sizeof name_.token);
}

SharedWindow::SharedWindow(const WindowName& name)
    : name_(name),
      file_(::open(formatted("/proc/{}/fd/{}", name.process, name.descriptor).c_str(),
                   O_RDWR | O_CLOEXEC)) {
  if (!file_) window_refused("open the window of another rank", name.bytes, errno);

  struct stat facts {};

  std::uint64_t token = 0;
  const bool same = ::fstat(file_.get(), &facts) == 0 &&
                    static_cast<std::uint64_t>(facts.st_size) == kPage + name.bytes &&
                    ::pread(file_.get(), &token, sizeof token, 0) == sizeof token &&
                    token == name.token;
  if (!same) window_refused("open the window of another rank", name.bytes, ENOENT);
  map();
}

SharedWindow::~SharedWindow() {
  if (mapped_ != nullptr) ::munmap(mapped_, kPage + name_.bytes);
}

void SharedWindow::map() {
  void* const memory =
      ::mmap(nullptr, kPage + name_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (memory == MAP_FAILED) window_refused("mmap", name_.bytes, errno);
  mapped_ = static_cast<std::byte*>(memory);
}

void SharedWindow::reserve(std::uint64_t begin, std::uint64_t size) {
  if (const int error = allocate(file_.get(), kPage + begin, size); error != 0)
    window_refused("posix_fallocate", size, error);
}

std::byte* SharedWindow::data() const {
  return mapped_ + kPage;
}

}  // namespace trireme::comm
