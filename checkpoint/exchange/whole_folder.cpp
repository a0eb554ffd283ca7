#include "checkpoint/exchange/whole_folder.hpp"

#include <optional>
#include <string>

#include "checkpoint/format/folder.hpp"
#include "comm/agree.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/folders.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

void check_absent(const fs::path& target) {
  std::error_code ignored;  // a path that cannot be read cannot be created either
  if (fs::exists(fs::symlink_status(target, ignored)))
    fail(ErrorKind::usage, "{} exists already: choose another --output or remove it",
         target.string());
}

/// Creates and locks an empty directory for this process. Refuses a second export of the same name;
/// removes the files that a killed export left.
Fd claim_temporary(const fs::path& temporary, const fs::path& target) {
  make_folders(temporary);
  std::optional<Fd> lock = lock_folder(temporary);
  if (!lock)
    fail(ErrorKind::usage, "another export is writing {}; wait for it, or choose another --output",
         target.string());
  check_absent(target);  // another export may have finished before the lock
  for (const fs::path& left : list_folder(temporary)) remove_tree(left);
  return std::move(*lock);
}

}  // namespace

void write_whole_folder(const fs::path& directory, Communicator& world,
                        const std::function<void(const fs::path&)>& write) {
  const fs::path target =
      directory.has_filename() ? directory : directory.parent_path();  // "out/" is out
  const fs::path temporary =
      target.parent_path() / formatted(".tmp-{}", target.filename().string());
  std::optional<Fd> claim;  // rank 0 holds it for all ranks
  on_first_rank(world, [&] {
    check_absent(target);
    claim = claim_temporary(temporary, target);
  });
  const auto error = capture([&] {
    write(temporary);
    on_first_rank(world, [&] {
      sync_folder(temporary);
      publish(temporary, target);
    });
  });
  if (!error) return;
  std::error_code ignored;
  if (world.rank() == 0) fs::remove_all(temporary, ignored);
  throw Error(error->kind(), error->what());
}

}  // namespace trireme
