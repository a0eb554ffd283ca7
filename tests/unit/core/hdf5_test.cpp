#include "core/files/hdf5.hpp"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>

#include "core/files/file.hpp"
#include "support/hdf5_values.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

using Hdf5 = Scratch;

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

TEST_F(Hdf5, EveryDtypeSurvivesTheTrip) {
  const std::uint64_t shape[] = {3, 5};
  for (int i = 0; i < 12; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name(dtype_name(dtype));
    const std::vector<std::byte> bytes = pattern(15 * size_of(dtype));
    Hdf5File file = Hdf5File::create(at(name));
    file.write("/group/" + name, dtype, shape, bytes);
    file.close();

    const Hdf5File again = Hdf5File::open(at(name));
    const Hdf5Dataset info = again.dataset("/group/" + name);
    std::vector<std::byte> back(bytes.size());
    again.read("/group/" + name, dtype, back);

    EXPECT_EQ(back, bytes) << name;
    EXPECT_EQ(info.shape, (std::vector<std::uint64_t>{3, 5}));
    EXPECT_EQ(size_of(info.dtype), size_of(dtype));
    EXPECT_TRUE(info.offset);
  }
}

TEST_F(Hdf5, EmptyAndScalarDatasetsSurviveTheTrip) {
  Hdf5File file = Hdf5File::create(at("f"));
  write_vector<std::int32_t>(file, "/empty", DType::i32, {});
  file.write("/scalar", DType::u8, {}, pattern(1));
  file.close();

  const Hdf5File again = Hdf5File::open(at("f"));
  EXPECT_TRUE(read_vector<std::int32_t>(again, "/empty", DType::i32).empty());
  EXPECT_EQ(read_vector<std::uint8_t>(again, "/scalar", DType::u8), std::vector<std::uint8_t>{1});
  EXPECT_FALSE(again.dataset("/empty").offset);
}

TEST_F(Hdf5, SkeletonAndPwriteReadBack) {
  const std::uint64_t shape[] = {1000};
  Hdf5File file = Hdf5File::create(at("f"));
  const std::uint64_t first = file.create_dataset("/a/first", DType::u16, shape);
  const std::uint64_t second = file.create_dataset("/a/second", DType::f64, shape);
  file.close();
  std::vector<std::uint16_t> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), std::uint16_t{0});
  const std::vector<double> reals(1000, 0.25);
  {
    const Fd fd(::open(at("f").c_str(), O_WRONLY | O_CLOEXEC));
    write_all(fd.get(), std::as_bytes(std::span(numbers)), first, at("f"));
    write_all(fd.get(), std::as_bytes(std::span(reals)), second, at("f"));
  }

  const Hdf5File again = Hdf5File::open(at("f"));
  EXPECT_EQ(read_vector<std::uint16_t>(again, "/a/first", DType::u16), numbers);
  EXPECT_EQ(read_vector<double>(again, "/a/second", DType::f64), reals);
  EXPECT_EQ(again.dataset("/a/first").offset, first);
  EXPECT_EQ(again.dataset("/a/second").offset, second);
}

void write_example(const std::filesystem::path& path) {
  Hdf5File file = Hdf5File::create(path);
  file.set_attribute("kind", "pretrain");
  file.set_attribute("version", std::uint64_t{1});
  write_vector<std::int64_t>(file, "/doc/offset", DType::i64, {0, 5, 9});
  write_vector<std::uint16_t>(file, "/token", DType::u16, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  file.close();
}

TEST_F(Hdf5, EqualContentGivesEqualBytes) {
  write_example(at("a"));
  ::sleep(1);  // a stored time would differ
  write_example(at("b"));

  EXPECT_TRUE(read_file(at("a")) == read_file(at("b")));
}

TEST_F(Hdf5, HasAndAttributes) {
  write_example(at("f"));
  const Hdf5File file = Hdf5File::open(at("f"));

  EXPECT_TRUE(file.has("/doc"));
  EXPECT_TRUE(file.has("/doc/offset"));
  EXPECT_FALSE(file.has("/doc/size"));
  EXPECT_FALSE(file.has("/none/at/all"));
  EXPECT_FALSE(file.has("/token/inside"));
  EXPECT_EQ(file.attribute_text("kind"), "pretrain");
  EXPECT_EQ(file.attribute_number("version"), 1U);
  EXPECT_EQ(error_of([&] { (void)file.attribute_text("none"); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { (void)file.attribute_text("version"); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { (void)file.attribute_number("kind"); }).kind(), ErrorKind::data);
}

TEST_F(Hdf5, ReadChecksNameTypeAndSize) {
  write_example(at("f"));
  const Hdf5File file = Hdf5File::open(at("f"));
  std::vector<std::byte> bytes(18);

  EXPECT_NO_THROW(file.read("/token", DType::u16, bytes));
  EXPECT_NO_THROW(file.read("/token", DType::bf16, bytes));  // stored as bits
  EXPECT_EQ(error_of([&] { file.read("/token", DType::i16, bytes); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { file.read("/absent", DType::u16, bytes); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { file.read("/doc", DType::u16, bytes); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { file.read("/token", DType::u16, std::span(bytes).first(16)); }).kind(),
            ErrorKind::data);
}

TEST_F(Hdf5, CreateRefusesAnExistingFileAndNeverOverwritesIt) {
  write_file_atomic(at("f"), "precious");

  EXPECT_EQ(error_of([&] { Hdf5File::create(at("f")); }).kind(), ErrorKind::usage);
  EXPECT_EQ(read_file(at("f")), "precious");
}

TEST_F(Hdf5, OpenRefusesWhatIsNotACompleteFile) {
  write_file_atomic(at("foreign"), "this is no HDF5 file at all");
  write_file_atomic(at("empty"), "");
  write_example(at("whole"));
  const std::string whole = read_file(at("whole"));
  write_file_atomic(at("cut"), whole.substr(0, whole.size() / 2));
  std::string flipped = whole;
  flipped[20] = static_cast<char>(flipped[20] ^ 0x10);  // the superblock has a checksum
  write_file_atomic(at("flipped"), flipped);

  for (const char* name : {"foreign", "empty", "absent", "cut", "flipped"}) {
    EXPECT_EQ(error_of([&] { Hdf5File::open(at(name)); }).kind(), ErrorKind::data) << name;
  }
}

TEST_F(Hdf5, OpenRefusesAFileOfADeadWriter) {
  const pid_t child = ::fork();
  if (child == 0) {
    Hdf5File file = Hdf5File::create(at("f"));
    write_vector<std::int64_t>(file, "/a", DType::i64, {1, 2, 3});
    ::_exit(0);  // no close, no flush
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);

  EXPECT_EQ(error_of([&] { Hdf5File::open(at("f")); }).kind(), ErrorKind::data);
}

TEST_F(Hdf5, ForeignContentIsRefusedWithoutOverrun) {
  hdf5_init();
  const hid_t file = H5Fcreate(at("f").c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t many[] = {64};
  const hid_t space = H5Screate_simple(1, many, nullptr);
  const hid_t none = H5Screate(H5S_NULL);
  const std::vector<std::uint64_t> values(64, ~0ULL);
  const hid_t attribute = H5Acreate2(file, "many", H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  H5Awrite(attribute, H5T_NATIVE_UINT64, values.data());
  const hid_t big_endian =
      H5Dcreate2(file, "big_endian", H5T_STD_U64BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t null =
      H5Dcreate2(file, "null", H5T_STD_U64LE, none, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dclose(null);
  H5Dclose(big_endian);
  H5Aclose(attribute);
  H5Sclose(none);
  H5Sclose(space);
  H5Fclose(file);

  const Hdf5File again = Hdf5File::open(at("f"));
  EXPECT_EQ(error_of([&] { (void)again.attribute_number("many"); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { (void)again.attribute_text("many"); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { (void)again.dataset("/big_endian"); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { (void)again.dataset("/null"); }).kind(), ErrorKind::data);
}

TEST_F(Hdf5, MovesKeepOneOwner) {
  write_example(at("f"));
  Hdf5File first = Hdf5File::open(at("f"));
  Hdf5File second = std::move(first);

  EXPECT_TRUE(second.has("/token"));
  second.close();
}

}  // namespace
}  // namespace trireme
