#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

/// Records the file-system calls of a program, or makes one of them fail. Linking disk_recorder.cpp
/// replaces the system's calls (open, write, fsync, rename, mkdir, ...) of the whole test program,
/// of libhdf5 and of the standard library.
namespace trireme::test {

/// One successful call below the recorded directory. Files and directories are numbered in order of
/// appearance.
struct DiskCall {
  enum class Kind { create, make_directory, write, resize, sync, rename, remove };

  Kind kind = Kind::write;
  // Set for create, make_directory, rename (the source) and remove; relative to the directory.
  int node = -1;
  // for create, make_directory, rename (the source) and remove; relative to the directory
  std::string path;
  std::string target;        // for rename
  std::uint64_t offset = 0;  // for write; the new size for resize
  std::string bytes;         // for write
};

/// Starts to record the calls below `folder`, an existing directory.
void record_disk(const std::filesystem::path& folder);
std::vector<DiskCall> stop_recording();

/// Makes the nth modifying call after this one (write, resize, sync, create, rename; counted from
/// 1) fail with `error`; 0 makes none fail. Returns the number of modifying calls since the last
/// call of this function.
std::uint64_t fail_disk_call(std::uint64_t nth, int error);

/// The possible states of a disk after a power failure (disk_image.cpp).
class DiskImage {
 public:
  /// Selects which calls that no fsync has covered reached the disk.
  enum class Lost {
    everything,  // nothing that was not synced
    data,        // names reached the disk, contents did not: zeros
    names,       // contents reached the disk, names did not
    nothing,     // everything reached the disk: the process was killed, not the machine
    some,        // a random subset of the writes, and names up to a random call
  };

  /// Returns the state after the first `count` of `calls` on a directory that was empty.
  DiskImage(const std::vector<DiskCall>& calls, std::size_t count, Lost lost, unsigned seed = 0);

  /// Writes the image into `folder` and removes what it contained.
  void write(const std::filesystem::path& folder) const;

 private:
  struct Node {
    bool is_folder = false;
    std::string content;
    std::map<std::string, int> entries;
  };

  std::map<int, Node> nodes_;  // number 0 is the recorded directory itself
};

}  // namespace trireme::test
