#pragma once
#include <filesystem>

#include "core/files/file.hpp"

namespace trireme {

/// A copy of a token set on a disk of this node, for all processes of the node that read it: the
/// first makes it and checks every byte, the others wait for it, the last one deletes it. What
/// killed processes left is used by the next that want the same tokens, once it is checked again,
/// and deleted by the next that want others.
///   place/trireme-staged/HASH        the copy, by Manifest::content_xxh3
///   place/trireme-staged/HASH.part   while it is made
///   place/trireme-staged/HASH.lock   flock: exclusive to make or delete, shared to read
class StagedSet {
 public:
  /// `place`: a folder of a local disk; made where it is not. Throws Error(data) if the set is
  /// damaged, Error(resource) if there is no room for it, Error(usage) if `place` cannot be written
  /// to, StoppedEarly. Nothing half made stays.
  StagedSet(const std::filesystem::path& set, const std::filesystem::path& place);
  StagedSet(const StagedSet&) = delete;
  StagedSet& operator=(const StagedSet&) = delete;
  ~StagedSet();

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  /// This one copied it, rather than found it.
  [[nodiscard]] bool made() const { return made_; }

 private:
  bool take_lock(int kind);

  std::filesystem::path folder_;
  Fd lock_;
  bool made_ = false;
};

}  // namespace trireme
