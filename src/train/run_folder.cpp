#include "train/run_folder.hpp"

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"

namespace trireme {

void RunFolder::prepare() const {
  namespace fs = std::filesystem;
  std::error_code code;
  if (fs::exists(root, code) && !fs::is_directory(root, code))
    fail(ErrorKind::usage, "--run ", root.string(), " is a file, must be a folder");
  const bool ours = fs::exists(checkpoints(), code) || fs::exists(config(), code);
  if (!ours && fs::exists(root, code) && !fs::is_empty(root, code)) {
    fail(ErrorKind::usage,
         "--run ",
         root.string(),
         " holds something that is not a run of trireme; give a new or an empty folder");
  }
  fs::create_directories(checkpoints(), code);
  if (code) fail(ErrorKind::resource, "cannot make ", checkpoints().string(), ": ", code.message());
}

void write_status(const RunFolder& folder, const std::string& state, int code, std::int64_t step) {
  const Json status{{"state", state}, {"exit_code", code}, {"step", step}};
  write_file_atomic(folder.status(), status.dump() + "\n");
}

}  // namespace trireme
