#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

/// What a program asks of the file system, recorded or refused on purpose. Linking
/// disk_recorder.cpp replaces the system's calls (open, write, fsync, rename, mkdir, ...) of the
/// whole test program, of libhdf5 and of the standard library too.
namespace trireme::test {

/// One call below the recorded folder that succeeded. Files and folders are
/// numbered as they appear.
struct DiskCall {
  enum class Kind { create, make_folder, write, resize, sync, rename, remove };

  Kind kind = Kind::write;
  int node = -1;             // create, make_folder, write, resize, sync
  std::string path;          // create, make_folder, rename (from), remove; relative to the folder
  std::string target;        // rename
  std::uint64_t offset = 0;  // write; resize: the new size
  std::string bytes;         // write
};

/// Records from now on, what happens below `folder` (which exists).
void record_disk(const std::filesystem::path& folder);
std::vector<DiskCall> stop_recording();

/// The nth changing call from now on (writing, resizing, syncing, making, renaming; counted from 1)
/// fails with `error`; 0: none. Returns how many there were since the last call of this function.
std::uint64_t fail_disk_call(std::uint64_t nth, int error);

/// What may lie on a disk after the power fails (disk_image.cpp).
class DiskImage {
 public:
  /// Which of the calls that no fsync has covered reached the disk.
  enum class Lost {
    everything,  // nothing that was not synced
    data,        // names are there, contents are not: zeros
    names,       // contents are there, names are not
    nothing,     // all reached it: the program was killed, not the machine
    some,        // each write by chance, names up to some point
  };

  /// The state after the first `count` of `calls` on a folder that was empty.
  DiskImage(const std::vector<DiskCall>& calls, std::size_t count, Lost lost, unsigned seed = 0);

  /// Writes the image into `folder`, which is emptied.
  void write(const std::filesystem::path& folder) const;

 private:
  struct Node {
    bool is_folder = false;
    std::string content;
    std::map<std::string, int> entries;
  };

  std::map<int, Node> nodes_;  // 0: the folder
};

}  // namespace trireme::test
