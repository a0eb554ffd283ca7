#include <cmath>

#include "checkpoint/reference/reference_scores.hpp"
#include "core/files/folders.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme {
namespace {

using namespace test;

const ReferenceOrigin kOrigin{"0123456789abcdef0123456789abcdef", 2048, std::string(64, 'a')};

ReferenceTable some_table() {
  return {kOrigin, {-1.5, -2.25, std::nan(""), std::nan(""), -1e-300, -7}, {3, 4, 0, 0, 1, 2}};
}

TEST(Reference, IsReadAsItWasWritten) {
  const TempFolder folder;
  const fs::path place = folder / "scores";
  EXPECT_FALSE(is_reference(place));
  make_folders(folder / ".tmp-scores");  // a killed writer's
  write_file_atomic(folder / ".tmp-scores/reference.safetensors", "part");
  save_reference(place, some_table());
  EXPECT_TRUE(is_reference(place));
  EXPECT_FALSE(fs::exists(folder / ".tmp-scores"));
  const ReferenceTable read = load_reference(place, kOrigin);
  EXPECT_EQ(read.counts, some_table().counts);
  for (const std::size_t i : {0, 1, 4, 5}) EXPECT_EQ(read.sums[i], some_table().sums[i]);
  EXPECT_TRUE(std::isnan(read.sums[2]) && std::isnan(read.sums[3]));

  save_reference(folder / "empty", {kOrigin, {}, {}});
  EXPECT_TRUE(load_reference(folder / "empty", kOrigin).sums.empty());
}

TEST(Reference, IsNotReplaced) {
  const TempFolder folder;
  save_reference(folder / "scores", some_table());
  const std::string before = read_file(folder / "scores/reference.json");
  message_of(ErrorKind::usage, [&] { save_reference(folder / "scores", {kOrigin, {}, {}}); });
  EXPECT_EQ(read_file(folder / "scores/reference.json"), before);
}

TEST(Reference, ServesNothingElseThanItWasMadeOf) {
  const TempFolder folder;
  const fs::path place = folder / "scores";
  save_reference(place, some_table());
  const auto refusal = [&](ReferenceOrigin other) {
    return message_of(ErrorKind::usage, [&] { (void)load_reference(place, other); });
  };
  ReferenceOrigin set = kOrigin;
  set.set_xxh3_128 = std::string(32, 'f');
  EXPECT_NE(refusal(set).find("made with a token set of content hash 0123456789abcdef"),
            std::string::npos);
  ReferenceOrigin length = kOrigin;
  length.seq_len = 512;
  EXPECT_NE(refusal(length).find("made with train.seq_len 2048, this run has 512"),
            std::string::npos);
  EXPECT_NE(refusal(length).find("trireme dpo-reference"), std::string::npos);
  EXPECT_NE(refusal(length).find(place.string()), std::string::npos);
  ReferenceOrigin weights = kOrigin;  // a reference may be any model
  weights.weights_sha256 = std::string(64, 'b');
  EXPECT_EQ(load_reference(place, weights).origin.weights_sha256, kOrigin.weights_sha256);
}

TEST(Reference, DamageOfAnyByteIsBadData) {
  const TempFolder folder;
  const fs::path place = folder / "scores";
  save_reference(place, some_table());
  for (const char* name : {"reference.json", "reference.safetensors"}) {
    const std::string good = read_file(place / name);
    for (std::size_t at = 0; at < good.size(); at += 7) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x11);
      write_file_atomic(place / name, bad);
      message_of(ErrorKind::data, [&] { (void)load_reference(place, kOrigin); });
    }
    write_file_atomic(place / name, good.substr(0, good.size() - 5));
    message_of(ErrorKind::data, [&] { (void)load_reference(place, kOrigin); });
    write_file_atomic(place / name, good);
  }
  EXPECT_NO_THROW((void)load_reference(place, kOrigin));
  fs::remove(place / "reference.safetensors");
  message_of(ErrorKind::data, [&] { (void)load_reference(place, kOrigin); });
  message_of(ErrorKind::data, [&] { (void)load_reference(folder / "none", kOrigin); });
}

}  // namespace
}  // namespace trireme
