// Tests malicious checkpoints: they are refused with kind data (exit code 3), nothing outside of
// their directory is read, and memory stays bounded.
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/retention.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "core/hash/xxh3.hpp"
#include "support/child.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme {
namespace {

using namespace test;

struct Saved {
  TempDirectory folder;
  fs::path step = folder / "step-000000002";
  fs::path shard = step / "shard-00000-of-00001.h5";

  Saved() { save_layout(folder.path(), 2, make_logicals(17), 1, 0); }
};

/// Returns a manifest with this body and a matching hash.
std::string sealed(std::string body) {
  return body + formatted("\"self_hash\": \"{}\"\n}}\n", xxh3_128_hex(body));
}

constexpr int kStillRoot = 99;

/// Makes this process the user nobody, permanently, because root may read everything.
void leave_root() {
  if (::geteuid() != 0) return;
  constexpr uid_t kNobody = 65534;
  const bool left = ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
                    ::setresuid(kNobody, kNobody, kNobody) == 0;
  if (!left) ::_exit(kStillRoot);
}

void read_everything(const checkpoint::Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.manifest().tensors)
    (void)checkpoint.read_logical(name);
  for (const checkpoint::SavedFile& file : checkpoint.manifest().files)
    (void)checkpoint.file(file.name);
}

/// Returns the exit code of a child that verifies and reads everything with at most 3 GB of memory
/// in at most a minute.
int exit_code_of_reading(const fs::path& step) {
  return shell_code(in_child([&] {
    ::alarm(60);
    limit_memory(std::uint64_t{3} << 30);
    read_everything(checkpoint::verify_checkpoint(step));
  }));
}

/// Returns the exit code of a child that finds, verifies and reads everything as a user with normal
/// permissions.
int exit_code_of_reading_as_nobody(const fs::path& step) {
  return shell_code(in_child([&] {
    leave_root();
    read_everything(checkpoint::verify_checkpoint(checkpoint::locate_checkpoints(step).path));
  }));
}

TEST(Hostile, PipesDevicesAndDirectoriesInPlaceOfFilesAreRefusedWithoutWaiting) {
  const Saved saved;
  for (const auto& [name, content] : contents(saved.step)) {
    const fs::path path = saved.step / name;
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(exit_code_of_reading(saved.step), 3) << name << " a pipe";
    fs::remove(path);
    fs::create_directory(path);
    EXPECT_EQ(exit_code_of_reading(saved.step), 3) << name << " a directory";
    fs::remove(path);
    fs::create_symlink("/dev/zero", path);
    EXPECT_EQ(exit_code_of_reading(saved.step), 3) << name << " a link to a device";
    fs::remove(path);
    overwrite(path, content);
  }
  EXPECT_EQ(exit_code_of_reading(saved.step), 0);
}

TEST(Hostile, AStepThatIsNotADirectoryIsDamaged) {
  const Saved saved;
  fs::rename(saved.step, saved.folder / "elsewhere");
  const auto expect_damaged = [&](const char* what) {
    std::string warning;
    EXPECT_FALSE(checkpoint::find_newest_good(saved.folder.path(), [&](std::string_view text) {
      warning += text;
    })) << what;
    EXPECT_NE(warning.find(saved.step.filename().string()), std::string::npos) << what;
    const std::int64_t step = checkpoint::step_of_directory_name(saved.step.filename().string());
    fs::remove_all(checkpoint::set_aside_step(saved.folder.path(), step));
  };
  fs::create_directory_symlink(saved.folder / "elsewhere", saved.step);
  expect_damaged("a link");
  ASSERT_EQ(::mkfifo(saved.step.c_str(), 0600), 0);
  expect_damaged("a pipe");
  overwrite(saved.step, "x");
  expect_damaged("a file");
  EXPECT_TRUE(fs::exists(saved.folder / "elsewhere" / checkpoint::kManifestName));
}

TEST(Hostile, FilesAndDirectoriesWithoutPermissionAreRefused) {
  const Saved saved;
  for (const fs::path& folder : {saved.folder.path(), saved.step})
    ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  for (const auto& entry : fs::directory_iterator(saved.step))
    ASSERT_EQ(::chmod(entry.path().c_str(), 0644), 0);
  ASSERT_EQ(exit_code_of_reading_as_nobody(saved.step), 0);
  for (const auto& entry : fs::directory_iterator(saved.step)) {
    ASSERT_EQ(::chmod(entry.path().c_str(), 0), 0);

    EXPECT_EQ(exit_code_of_reading_as_nobody(saved.step), exit_code(ErrorKind::data))
        << entry.path().filename();
    ASSERT_EQ(::chmod(entry.path().c_str(), 0644), 0);
  }
  for (const fs::path& folder : {saved.folder.path(), saved.step}) {
    for (const ::mode_t mode : {0000, 0444, 0111}) {
      ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
      const int expected = folder != saved.step && mode == 0111 ? 0 : exit_code(ErrorKind::data);

      EXPECT_EQ(exit_code_of_reading_as_nobody(saved.step), expected)
          << folder << " mode " << std::oct << mode;
      ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
    }
  }
}

/// A step of another user cannot be pruned: the other steps are pruned, and later saves succeed.
TEST(Hostile, AStepThatCannotBeDeletedStopsNeitherPruningNorSaving) {
  const TempDirectory folder;
  const fs::path steps = folder / "checkpoints";
  for (const int step : {1, 2, 3}) save_layout(steps, step, make_logicals(1), 1, 0);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  constexpr uid_t kNobody = 65534;
  const uid_t owner = ::geteuid() == 0 ? kNobody : ::geteuid();
  for (const fs::path& mine : {steps, steps / "step-000000001", steps / "step-000000003"}) {
    ASSERT_TRUE(::geteuid() != 0 || ::chown(mine.c_str(), owner, owner) == 0);
  }
  ASSERT_EQ(::chmod((steps / "step-000000002").c_str(), 0555), 0);
  const auto prune = [&] {
    leave_root();
    checkpoint::prune_checkpoints(steps, {.run_id = "run", .keep_last = 1},
                                  [](std::string_view) {});
  };

  EXPECT_EQ(shell_code(in_child(prune)), exit_code(ErrorKind::usage));
  EXPECT_EQ(checkpoint::list_steps(steps), std::vector<std::int64_t>{3});
  EXPECT_EQ(shell_code(in_child([&] {
              leave_root();
              save_layout(steps, 4, make_logicals(1), 1, 0);
            })),
            0);
  EXPECT_EQ(checkpoint::list_steps(steps), (std::vector<std::int64_t>{4, 3}));
  for (const auto& entry : fs::directory_iterator(steps)) ::chmod(entry.path().c_str(), 0755);
}

/// The HDF5 content of a shard (external storage, links, filters, virtual datasets, huge shapes) is
/// never parsed. Only the byte ranges of the manifest are read, inside the shard.
TEST(Hostile, ShardsAreNeverParsed) {
  const Saved saved;
  std::string manifest = read_file(saved.step / checkpoint::kManifestName);
  std::string bytes = read_file(saved.shard);
  const checkpoint::CheckpointManifest parsed = checkpoint::parse_manifest(manifest, "m");
  const std::string old_hash = parsed.shards[0].hash;
  for (std::size_t at = 0; at < 48; ++at) bytes[at] = 'x';  // no longer an HDF5 file
  overwrite(saved.shard, bytes);
  manifest.resize(manifest.rfind("\"self_hash\""));
  manifest.replace(manifest.find(old_hash), old_hash.size(), xxh3_128_hex(bytes));
  overwrite(saved.step / checkpoint::kManifestName, sealed(manifest));

  RankState mine = make_rank_state(make_logicals(17), 0, 1, 1, false);
  checkpoint::load_tensors(checkpoint::verify_checkpoint(saved.step), mine.state);

  EXPECT_EQ(mine.storage, make_rank_state(make_logicals(17), 0, 1, 1, true).storage);
}

TEST(Hostile, JsonMadeToFillMemoryIsRefused) {
  const Saved saved;
  const std::string head = "{\n\"format\": \"trireme-checkpoint\",\n\"version\": 1,\n";
  const auto expect_refused = [&](const std::string& what, const std::string& body) {
    overwrite(saved.step / checkpoint::kManifestName, sealed(head + body + ",\n"));
    EXPECT_EQ(exit_code_of_reading(saved.step), 3) << what;
  };
  std::string many = "\"values\": [";
  for (int i = 0; i < 25'000'000; ++i) many += "[],";
  expect_refused("more lists than are read", many + "[]]");
  expect_refused("deep", "\"values\": " + std::string(100'000, '[') + std::string(100'000, ']'));
  expect_refused("a long text", "\"values\": {\"a\": \"" + std::string(40'000'000, 'x') + "\"}");
}

TEST(Hostile, AHugeSparseManifestIsNotRead) {
  const Saved saved;
  fs::resize_file(saved.step / checkpoint::kManifestName, std::uintmax_t{1} << 40);
  EXPECT_EQ(exit_code_of_reading(saved.step), 3);
}

TEST(Hostile, AHugeShapeInASparseShardDoesNotFillMemory) {
  const Saved saved;
  fs::resize_file(saved.shard, std::uintmax_t{1} << 42);
  EXPECT_EQ(exit_code_of_reading(saved.step), 3) << "not of the recorded size";
}

}  // namespace
}  // namespace trireme
