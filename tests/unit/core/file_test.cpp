#include "core/files/file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <thread>
#include <vector>

#include "core/files/directories.hpp"
#include "core/files/refusal.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

using File = Scratch;

/// Limits the size of every file of this process to `bytes` until destruction, like a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }

  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_{};
};

TEST_F(File, AtomicWriteReplacesTheWholeContent) {
  write_file_atomic(at("a"), "a longer first content");
  write_file_atomic(at("a"), "second");
  write_file_atomic(at("empty"), "");

  EXPECT_EQ(read_file(at("a")), "second");
  EXPECT_EQ(read_file(at("empty")), "");
  EXPECT_EQ(num_files(), 2U);
}

TEST_F(File, AtomicWriteOnAFullDiskKeepsTheOldContentAndLeavesNothing) {
  write_file_atomic(at("a"), "old");
  const Error error = error_of([&] {
    const FileSizeLimit limit(10);
    write_file_atomic(at("a"), std::string(100, 'x'));
  });

  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_TRUE(contains(error.what(), at("a").string())) << error.what();
  EXPECT_EQ(read_file(at("a")), "old");
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(File, AtomicWriteIntoAnAbsentDirectoryNamesIt) {
  EXPECT_EQ(std::string(error_of([&] { write_file_atomic(at("no/a"), "x"); }).what()),
            formatted("cannot create {}: No such file or directory; create the directory {} first, "
                      "or choose another path",
                      at("no/a").string(), at("no").string()));
}

TEST_F(File, ARefusalMeansTheSameWhereverItIsMet) {
  for (const int lasting :
       {ENOENT, ENOTDIR, EISDIR, EEXIST, ENOTEMPTY, EACCES, EPERM, EROFS, ENAMETOOLONG, ELOOP}) {
    EXPECT_EQ(kind_of_errno(Access::read, lasting), ErrorKind::data) << lasting;
    EXPECT_EQ(kind_of_errno(Access::write, lasting), ErrorKind::usage) << lasting;
  }
  for (const int machine : {ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EIO, EAGAIN, EFBIG, ESTALE}) {
    for (const Access access : {Access::read, Access::write})
      EXPECT_EQ(kind_of_errno(access, machine), ErrorKind::resource) << machine;
  }
  const std::string long_name(300, 'x');
  for (const std::string& nowhere :
       {std::string(), std::string("/proc/none"), at(long_name).string()}) {
    EXPECT_EQ(error_of([&] { write_file_atomic(nowhere, ""); }).kind(), ErrorKind::usage);
    EXPECT_EQ(error_of([&] { make_directories(nowhere); }).kind(), ErrorKind::usage) << nowhere;
    EXPECT_EQ(error_of([&] { read_file(nowhere); }).kind(), ErrorKind::data) << nowhere;
  }
}

TEST_F(File, ATakenPlaceOrAFileInTheWayIsUsage) {
  write_file_atomic(at("a"), "mine");
  write_file_atomic(at("b"), "new");

  EXPECT_EQ(error_of([&] { publish(at("b"), at("a")); }).kind(), ErrorKind::usage);
  EXPECT_EQ(error_of([&] { make_directories(at("a")); }).kind(), ErrorKind::usage);
  EXPECT_EQ(error_of([&] { make_directories(at("a/below")); }).kind(), ErrorKind::usage);
  EXPECT_EQ(read_file(at("a")), "mine");
}

TEST_F(File, ADirectoryIsLockedForOneProcessUntilItsEnd) {
  make_directories(at("a"));
  {
    const std::optional<Fd> mine = lock_directory(at("a"));
    ASSERT_TRUE(mine);
    EXPECT_FALSE(lock_directory(at("a")));
    std::filesystem::rename(at("a"), at("b"));
    EXPECT_FALSE(lock_directory(at("b")));
  }
  EXPECT_TRUE(lock_directory(at("b")));
}

TEST_F(File, ThreadsMayReplaceOneFileAtTheSameTime) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (int k = 0; k < 10; ++k)
        write_file_atomic(at("a"), std::string(1000, static_cast<char>('0' + i)));
    });
  }
  threads.clear();

  const std::string content = read_file(at("a"));
  EXPECT_EQ(content, std::string(1000, content.at(0)));
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(File, ReadRefusesAbsentFilesDirectoriesAndLargeFiles) {
  write_file_atomic(at("ten"), "0123456789");

  EXPECT_EQ(read_file(at("ten"), 10), "0123456789");
  EXPECT_EQ(error_of([&] { read_file(at("ten"), 9); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { read_file(at("absent")); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { read_file(at(".")); }).kind(), ErrorKind::data);
}

TEST_F(File, ReadOfAHugeSparseFileDoesNotAskForItsSize) {
  write_file_atomic(at("sparse"), "");
  std::filesystem::resize_file(at("sparse"), std::uintmax_t{1} << 42);

  EXPECT_EQ(error_of([&] { read_file(at("sparse")); }).kind(), ErrorKind::data);
}

TEST_F(File, ReadAllPastTheEndNamesTheByte) {
  write_file_atomic(at("ten"), "0123456789");
  const Fd fd = open_read(at("ten"));
  std::vector<std::byte> bytes(4);

  read_all(fd.get(), bytes, 6, at("ten"));
  EXPECT_EQ(bytes[3], std::byte{'9'});
  const Error error = error_of([&] { read_all(fd.get(), bytes, 8, at("ten")); });
  EXPECT_EQ(error.kind(), ErrorKind::data);
  EXPECT_TRUE(contains(error.what(), "ends at byte 10, expected 12")) << error.what();
}

TEST_F(File, WriteAllPutsBytesAtTheirOffset) {
  write_file_atomic(at("a"), "..........");
  const Fd fd(::open(at("a").c_str(), O_WRONLY | O_CLOEXEC));

  write_all(fd.get(), std::as_bytes(std::span("xyz", 3)), 4, at("a"));
  sync_file(fd.get(), at("a"));

  EXPECT_EQ(read_file(at("a")), "....xyz...");
  const FileSizeLimit limit(10);
  EXPECT_EQ(
      error_of([&] { write_all(fd.get(), std::as_bytes(std::span("xyz", 3)), 8, at("a")); }).kind(),
      ErrorKind::resource);
}

TEST_F(File, PublishRefusesToReplace) {
  write_file_atomic(at("new"), "new");
  write_file_atomic(at("old"), "old");
  std::filesystem::create_directory(at("folder"));
  std::filesystem::create_directory(at("taken"));

  EXPECT_EQ(error_of([&] { publish(at("new"), at("old")); }).kind(), ErrorKind::usage);
  EXPECT_EQ(error_of([&] { publish(at("folder"), at("taken")); }).kind(), ErrorKind::usage);
  EXPECT_EQ(read_file(at("old")), "old");
  publish(at("new"), at("fresh"));
  publish(at("folder"), at("fresh_directory"));
  EXPECT_EQ(read_file(at("fresh")), "new");
  EXPECT_FALSE(std::filesystem::exists(at("new")));
  EXPECT_TRUE(std::filesystem::is_directory(at("fresh_directory")));
}

}  // namespace
}  // namespace trireme
