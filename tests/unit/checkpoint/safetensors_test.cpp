#include "checkpoint/exchange/safetensors.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "checkpoint/exchange/convert.hpp"
#include "core/dtype.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

SafetensorsSource source(const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
  return {name, dtype, std::move(shape), [](std::span<std::byte> bytes) {
            for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
          }};
}

std::string file_text(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data_bytes, 'x');
}

TEST(Safetensors, WritesWhatItReads) {
  const TempDirectory folder;
  const std::vector<SafetensorsSource> tensors{
      source("b", DType::f32, {2, 3}), source("a", DType::bf16, {5}),
      source("scalar", DType::i64, {}), source("none", DType::f32, {0, 4})};
  write_safetensors_alone(folder / "m.safetensors", tensors);
  const SafetensorsFile file = SafetensorsFile::open(folder / "m.safetensors");
  ASSERT_EQ(file.entries().size(), 4U);
  EXPECT_EQ(file.entries().at("b").shape, (std::vector<std::int64_t>{2, 3}));
  std::vector<std::byte> bytes(24);
  file.read("b", bytes);
  EXPECT_EQ(bytes[23], std::byte{23});
  const std::string raw = read_file(folder / "m.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, raw.data(), 8);
  EXPECT_EQ((8 + length) % 8, 0U);
  EXPECT_NE(raw.find("{\"__metadata__\":{\"format\":\"pt\"}"), std::string::npos);
}

/// Sections begin at whole MiB: of 9 MiB, some ranks have several tensors and some a part of one.
TEST(Safetensors, AnyNumberOfRanksWriteTheSameFile) {
  const TempDirectory folder;
  const std::vector<SafetensorsSource> tensors{
      source("a", DType::f32, {1000, 700}), source("tiny", DType::f16, {3}),
      source("none", DType::f32, {0}), source("b", DType::f32, {1600, 1000})};
  write_safetensors_alone(folder / "alone", tensors);
  const std::string alone = read_file(folder / "alone");
  for (const int ranks : {2, 3, 20}) {
    const fs::path path = folder.path() / formatted("by{}", ranks);
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      trireme::checkpoint::write_safetensors(path, tensors, world);
    });
    EXPECT_TRUE(read_file(path) == alone) << ranks;
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      message_of(ErrorKind::usage,
                 [&] { trireme::checkpoint::write_safetensors(path, tensors, world); });
    });
  }
}

TEST(Safetensors, LargeSetsAreSplitWithAnIndex) {
  const TempDirectory folder;
  std::vector<SafetensorsSource> tensors;
  for (int i = 0; i < 5; ++i) tensors.push_back(source(formatted("t{}", i), DType::f32, {10}));
  comm::SelfCommunicator alone;
  write_safetensors_directory(folder.path(), tensors, alone, 100);
  EXPECT_TRUE(fs::exists(folder / "model-00001-of-00003.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "model-00003-of-00003.safetensors"));
  EXPECT_NE(read_file(folder / "model.safetensors.index.json").find("\"total_size\": 200"),
            std::string::npos);
  EXPECT_EQ(open_safetensors_directory(folder.path()).size(), 5U);
  fs::remove(folder / "model-00002-of-00003.safetensors");
  message_of(ErrorKind::data, [&] { open_safetensors_directory(folder.path()); });
}

TEST(Safetensors, OneFileAndAnIndexOfOthersAreRefused) {
  const TempDirectory folder;
  const std::vector<SafetensorsSource> tensors{source("a", DType::f32, {4})};
  write_safetensors_alone(folder / "model.safetensors", tensors);
  write_safetensors_alone(folder / "part.safetensors", tensors);
  const fs::path index = folder / "model.safetensors.index.json";

  overwrite(index, R"({"weight_map": {"a": "part.safetensors"}})");
  const std::string text =
      message_of(ErrorKind::data, [&] { (void)open_safetensors_directory(folder.path()); });
  for (const char* word : {"model.safetensors and", "model.safetensors.index.json", "transformers"})
    EXPECT_NE(text.find(word), std::string::npos) << text;

  overwrite(index, R"({"weight_map": {"a": "model.safetensors"}})");
  EXPECT_EQ(open_safetensors_directory(folder.path()).size(), 1U);
}

TEST(Safetensors, IndexMayNotLeaveTheDirectory) {
  const TempDirectory folder;
  overwrite(folder / "model.safetensors.index.json",
            R"({"weight_map": {"a": "../../etc/passwd"}})");
  message_of(ErrorKind::data, [&] { open_safetensors_directory(folder.path()); });
}

TEST(Safetensors, HostileHeadersAreRefused) {
  const TempDirectory folder;
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"empty", ""},
      {"short", "1234567"},
      {"length 2^63", std::string("\0\0\0\0\0\0\0\x80", 8) + good},
      {"length beyond the file", std::string("\xff\0\0\0\0\0\0\0", 8) + good},
      {"not JSON", file_text("{{{{", 8)},
      {"a list", file_text("[]", 0)},
      {"hole at the end", file_text(good, 9)},
      {"data missing", file_text(good, 7)},
      {"hole at the begin",
       file_text(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12)},
      {"overlap",
       file_text(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
           12)},
      {"same twice",
       file_text(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
           8)},
      {"reversed", file_text(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8)},
      {"overflowing shape",
       file_text(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
                 8)},
      {"wrapping shape",
       file_text(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
                 0)},
      {"negative", file_text(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8)},
      {"fraction", file_text(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8)},
      {"offset 2^64",
       file_text(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551616]}})",
                 8)},
      {"three offsets",
       file_text(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8)},
      {"dtype", file_text(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8)},
      {"duplicate",
       file_text(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
           8)},
      {"deep", file_text("{\"a\":" + std::string(50'000, '[') + std::string(50'000, ']') + "}", 0)},
      {"no object", file_text(R"({"a":7})", 0)},
  };
  for (const auto& [what, text] : cases) {
    overwrite(folder / "m", text);
    SCOPED_TRACE(what);
    message_of(ErrorKind::data, [&] { (void)SafetensorsFile::open(folder / "m"); });
  }
  overwrite(folder / "m", file_text(good, 8));
  EXPECT_EQ(SafetensorsFile::open(folder / "m").entries().size(), 1U);
}

TEST(Safetensors, RandomDamageNeverReadsOutside) {
  const TempDirectory folder;
  const std::vector<SafetensorsSource> tensors{source("a", DType::f32, {4}),
                                               source("b", DType::f16, {3})};
  write_safetensors_alone(folder / "good", tensors);
  const std::string good = read_file(folder / "good");
  std::mt19937 random(3);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string bad = good;
    for (std::size_t flips = 1 + random() % 3; flips > 0; --flips)
      bad[random() % bad.size()] = static_cast<char>(random());
    overwrite(folder / "bad", bad);
    try {
      const SafetensorsFile file = SafetensorsFile::open(folder / "bad");
      for (const auto& [name, entry] : file.entries()) {
        std::vector<std::byte> bytes(entry.end - entry.begin);
        file.read(name, bytes);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
    }
  }
}

TEST(ConvertFloats, EveryHalfValueSurvivesTheRoundTrip) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = from_f16_bits(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(from_f16_bits(to_f16_bits(value))));
    } else {
      EXPECT_EQ(to_f16_bits(value), bits);
    }
  }
}

TEST(ConvertFloats, RoundsToNearestEvenBetweenNeighbours) {
  for (unsigned bits = 0; bits < 0x7bff; ++bits) {  // all pairs of positive finite neighbours
    const float low = from_f16_bits(static_cast<std::uint16_t>(bits));
    const float high = from_f16_bits(static_cast<std::uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact in f32
    EXPECT_EQ(to_f16_bits(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(to_f16_bits(std::nextafter(middle, 0.0F)), bits) << bits;
    EXPECT_EQ(to_f16_bits(std::nextafter(middle, 1e9F)), bits + 1) << bits;
  }
}

/// 1 + 2^-8 + 2^-40 is above the middle of two bf16 values; rounded to float, it is the middle.
TEST(ConvertFloats, DoublesAreRoundedOnce) {
  const auto rounded = [](DType to, double value) {
    std::array<std::byte, 2> bytes{};
    convert_floats(DType::f64, std::as_bytes(std::span(&value, 1)), to, bytes);
    return std::bit_cast<std::uint16_t>(bytes);
  };
  EXPECT_EQ(rounded(DType::bf16, 1 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(rounded(DType::bf16, 1 + 0x1p-8 - 0x1p-40), 0x3f80);
  EXPECT_EQ(rounded(DType::bf16, -(1 + 0x3p-8 - 0x1p-40)), 0xbf81);
  EXPECT_EQ(rounded(DType::f16, 1 + 0x1p-11 + 0x1p-50), 0x3c01);
  EXPECT_EQ(rounded(DType::f16, 0x1p-25 + 0x1p-60), 0x0001);
  EXPECT_EQ(rounded(DType::f16, 0x1p-25), 0x0000);
  EXPECT_EQ(rounded(DType::bf16, 1e300), 0x7f80);
  EXPECT_EQ(rounded(DType::bf16, -1e-300), 0x8000);
  EXPECT_EQ(rounded(DType::bf16, 0.0), 0x0000);
}

TEST(ConvertFloats, AValueBeyondTheHalfRangeIsRefusedWithItsTensor) {
  std::vector<float> values{1, -65504};
  std::vector<std::byte> halves(4);
  const auto convert = [&] {
    convert_floats(DType::f32, std::as_bytes(std::span(values)), DType::f16, halves);
    check_f16_range("model.norm.weight", halves);
  };
  convert();
  values[1] = -1e6F;
  EXPECT_NE(
      message_of(ErrorKind::data, convert).find("tensor model.norm.weight has a value beyond"),
      std::string::npos);
}

TEST(ConvertFloats, EndsOfTheHalfRange) {
  EXPECT_EQ(to_f16_bits(65504.0F), 0x7bff);
  EXPECT_EQ(to_f16_bits(65519.996F), 0x7bff);
  EXPECT_EQ(to_f16_bits(65520.0F), 0x7c00);
  EXPECT_EQ(to_f16_bits(-1e30F), 0xfc00);
  EXPECT_EQ(to_f16_bits(-0.0F), 0x8000);
  EXPECT_EQ(to_f16_bits(0x1.0p-25F), 0);  // half of the smallest subnormal rounds to even
  EXPECT_EQ(to_f16_bits(std::nextafter(0x1.0p-25F, 1.0F)), 1);
  EXPECT_EQ(to_f16_bits(std::numeric_limits<float>::infinity()), 0x7c00);
}

}  // namespace
}  // namespace trireme::checkpoint
