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
  std::error_code ignored;  // what cannot be looked at cannot be made either
  if (fs::exists(fs::symlink_status(target, ignored)))
    fail(ErrorKind::usage, "{} exists already: choose another --output or remove it",
         target.string());
}

/// An empty folder that is this process's alone: another export of the same name is refused, what
/// a killed one left is cleared.
Fd claim_temporary(const fs::path& temporary, const fs::path& target) {
  make_folders(temporary);
  std::optional<Fd> lock = lock_folder(temporary);
  if (!lock)
    fail(ErrorKind::usage, "another export is writing {}; wait for it, or choose another --output",
         target.string());
  check_absent(target);  // the other one may have ended between our look and our lock
  for (const fs::path& left : list_folder(temporary)) remove_tree(left);
  return std::move(*lock);
}

}  // namespace

void write_whole_folder(const fs::path& folder, Communicator& world,
                        const std::function<void(const fs::path&)>& write) {
  const fs::path target = folder.has_filename() ? folder : folder.parent_path();  // "out/" is out
  const fs::path temporary =
      target.parent_path() / formatted(".tmp-{}", target.filename().string());
  std::optional<Fd> claim;  // of rank 0, for all
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
