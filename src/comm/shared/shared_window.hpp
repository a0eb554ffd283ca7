#pragma once
#include <cstddef>
#include <cstdint>

#include "core/files/file.hpp"

namespace trireme::comm {

/// Identifies a window to other processes of the node. It consists of plain numbers, so it can be
/// sent as bytes.
struct WindowName {
  std::int64_t process = 0;     // process that created the window
  std::int64_t descriptor = 0;  // its file descriptor there
  std::uint64_t token = 0;      // random; stands at the start of the window
  std::uint64_t bytes = 0;      // without the token's page
};

/// Memory that several processes of one node map. The memory has no name in a file system
/// (memfd_create), so a killed process leaves nothing behind, and the size of /dev/shm is no limit.
class SharedWindow {
 public:
  /// Creates a window of `bytes` zero bytes. Throws Error(resource) if the system refuses.
  explicit SharedWindow(std::uint64_t bytes);

  /// Maps the window of another process of this user. Throws Error(resource) if that process has no
  /// such window, for example because it runs in another container.
  explicit SharedWindow(const WindowName& name);

  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;
  ~SharedWindow();

  /// Allocates the memory of bytes [begin, begin + size), on the NUMA node of the caller. A later
  /// access to reserved memory cannot fail. Without it, an access ends with SIGBUS if no memory is
  /// left. Throws Error(resource) if there is not enough memory.
  void reserve(std::uint64_t begin, std::uint64_t size);

  /// Closes the file descriptor. The memory stays mapped, but no other process can open it.
  void close_file() { file_.reset(); }

  [[nodiscard]] const WindowName& name() const { return name_; }

  /// Returns the first byte; aligned to a page.
  [[nodiscard]] std::byte* data() const;

 private:
  void map();

  WindowName name_;
  Fd file_;
  std::byte* mapped_ = nullptr;
};

}  // namespace trireme::comm
