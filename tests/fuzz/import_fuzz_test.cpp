/// Damaged token files of other programs must give an error of kind data, or documents that cover
/// every token once.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.hpp"
#include "data_prep/import/import_format.hpp"
#include "fuzz/mutator.hpp"
#include "unit/data/small_set.hpp"

namespace trireme {
namespace {

using testing::Mutator;
using testing::TestDirectory;

constexpr std::uint64_t kVocab = 50'257;

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct Seed {
  std::string bin;
  std::string idx;  // empty for llm.c
};

/// Returns sequences of 0 to 5 tokens, one or two in a document.
template <class T>
Seed megatron(std::uint8_t code) {
  constexpr std::uint64_t kSequences = 12;
  Seed seed;
  std::string lengths;
  std::string places;
  std::string borders;
  std::uint64_t num_borders = 1;
  for (std::uint64_t s = 0; s < kSequences; ++s) {
    if (s % 3 != 1) {
      put(borders, std::int64_t(s));
      ++num_borders;
    }
    put(lengths, std::int32_t(s % 6));
    put(places, std::int64_t(seed.bin.size()));
    for (std::uint64_t i = 0; i < s % 6; ++i) put(seed.bin, static_cast<T>(s * 10 + i));
  }
  put(borders, std::int64_t{kSequences});
  seed.idx.assign("MMIDIDX\0\0", 9);
  put(seed.idx, std::uint64_t{1});
  put(seed.idx, code);
  put(seed.idx, kSequences);
  put(seed.idx, num_borders);
  seed.idx += lengths + places + borders;
  return seed;
}

template <class T>
Seed llm_c(std::int32_t magic, std::int32_t version, T eot) {
  Seed seed;
  for (const std::int32_t value : {magic, version, std::int32_t{40}}) put(seed.bin, value);
  seed.bin.resize(1024);
  for (int i = 0; i < 40; ++i) put(seed.bin, i % 7 == 0 ? eot : static_cast<T>(i));
  return seed;
}

void put_file(const std::filesystem::path& path, const std::string& content) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  write_all(fd.get(), std::as_bytes(std::span(content)), 0, path);
}

void expect_documents(const data_prep::ForeignTokens& file, Mutator& mutator) {
  const std::uint64_t tokens = file.num_tokens();
  const std::vector<std::uint64_t> all = file.documents(0, tokens, false);
  const std::uint64_t begin = mutator.below(tokens + 1);
  const std::uint64_t end = begin + mutator.below(tokens - begin + 1);
  std::vector<std::uint64_t> expected;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_LT(all[i], tokens);
    if (i > 0) {
      ASSERT_GT(all[i], all[i - 1]);
    }
    if (all[i] >= begin && all[i] < end) expected.push_back(all[i]);
  }
  if (tokens > 0) {
    ASSERT_FALSE(all.empty());
    ASSERT_EQ(all.front(), 0U);
  }
  ASSERT_EQ(file.documents(begin, end, false), expected);
  expected.resize(std::min<std::size_t>(expected.size(), 1));
  ASSERT_EQ(file.documents(begin, end, true), expected);
}

TEST(Fuzz, ForeignTokenFilesGiveDocumentsOrAnError) {
  Mutator mutator(
      6, {std::string(8, '\xff'), std::string(8, '\0'), std::string("\x01\0\0\0\0\0\0\0", 8),
          std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8), std::string("\0\0\0\x80", 4),
          std::string("\x50\xc4", 2)});
  const std::vector<Seed> seeds{megatron<std::uint8_t>(1),
                                megatron<std::int16_t>(3),
                                megatron<std::int32_t>(4),
                                megatron<std::int64_t>(5),
                                megatron<std::uint16_t>(8),
                                llm_c<std::uint16_t>(20240520, 1, 50256),
                                llm_c<std::uint32_t>(20240801, 7, 128000)};
  const TestDirectory folder(testing::memory_directory("import_fuzz"));
  const std::filesystem::path bin = folder.path() / "case.bin";
  const std::filesystem::path idx = folder.path() / "case.idx";
  data_prep::InputFile input;
  input.path = input.given = bin;
  std::size_t accepted = 0;
  const long grown = testing::fuzz("import", testing::fuzz_cases(1'000'000), [&](std::size_t i) {
    Seed seed = seeds[mutator.below(seeds.size())];
    const bool has_index = !seed.idx.empty();
    std::string& damaged = has_index && i % 8 != 0 ? seed.idx : seed.bin;
    if (mutator.one_in(2)) {
      mutator.damage(damaged, 0, has_index ? damaged.size() : 12);  // the sizes remain consistent
    } else {
      mutator.mutate(damaged);
    }
    put_file(bin, seed.bin);
    if (has_index) put_file(idx, seed.idx);
    try {
      const auto file = has_index ? data_prep::open_megatron(input)
                                  : data_prep::open_llm_c(bin, data_prep::kEotOfFormat,
                                                          data_prep::EotPosition::detect);
      ASSERT_NO_FATAL_FAILURE(expect_documents(*file, mutator));
      std::vector<std::uint32_t> ids(file->num_tokens());
      file->read(0, ids, kVocab);
      for (const std::uint32_t id : ids) ASSERT_LT(id, kVocab);
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::data) << error.what();
    }
  });
  std::printf("%zu accepted\n", accepted);
  EXPECT_LT(grown, 200);
}

}  // namespace
}  // namespace trireme
