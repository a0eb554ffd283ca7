// Tests ten thousand single-bit flips and every truncation at a multiple of 512 bytes;
// damage_test.cpp tests a sample.
#include <gtest/gtest.h>

#include "checkpoint/maintenance/verify.hpp"
#include "core/hash/xxh3.hpp"
#include "support/child.hpp"
#include "unit/checkpoint/two_steps.hpp"

namespace trireme {
namespace {

using namespace test;

/// Returns tensors for a checkpoint that is large enough to be read without the page cache.
std::vector<Logical> large_logicals() {
  std::vector<Logical> logicals = make_logicals(17);
  std::mt19937 random(3);
  logicals.push_back({"param/large", DType::f32, {300, 400}, {}});
  logicals.back().bytes.resize(300 * 400 * 4);
  for (std::byte& byte : logicals.back().bytes) byte = static_cast<std::byte>(random() & 255U);
  return logicals;
}

struct Saved : TwoSteps {
  Saved() : TwoSteps(large_logicals()) {}

  void expect_refused(const std::string& what) const {
    expect_fallback(what);
    expect_never_wrong(what);
  }
};

TEST(ManyFlips, NoneOfTenThousandIsAccepted) {
  const Saved saved;
  const auto files = contents(saved.step);
  std::uint64_t total = 0;
  for (const auto& [name, content] : files) total += content.size();
  std::mt19937_64 random(5);
  for (int flip = 0; flip < 10'000; ++flip) {
    std::uint64_t at = random() % total;
    const auto* file = &*files.begin();
    for (const auto& candidate : files) {
      file = &candidate;
      if (at < candidate.second.size()) break;
      at -= candidate.second.size();
    }
    std::string damaged = file->second;
    damaged[at] = static_cast<char>(damaged[at] ^ (1U << (random() % 8)));
    overwrite(saved.step / file->first, damaged);
    saved.expect_refused(formatted("{} byte {}", file->first, at));
    overwrite(saved.step / file->first, file->second);
    if (HasFailure()) return;
  }
  checkpoint::verify_checkpoint(saved.step);
}

TEST(ManyTruncations, NoneAt512BytesIsAccepted) {
  const Saved saved;
  for (const auto& [name, content] : contents(saved.step)) {
    for (std::size_t size = 0; size < content.size(); size += 512) {
      overwrite(saved.step / name, content.substr(0, size));
      saved.expect_refused(formatted("{} cut to {}", name, size));
      if (HasFailure()) return;
    }
    overwrite(saved.step / name, content);
  }
}

/// The maximum number of values, each of the most expensive kind, stays below 3 GB.
TEST(LargestManifest, IsParsedInBoundedMemory) {
  const Saved saved;
  std::string body = "{\n\"format\": \"trireme-checkpoint\",\n\"version\": 1,\n\"values\": [";
  for (int i = 0; i < 11'900'000; ++i) body += "[],";
  body += "[]],\n";
  overwrite(saved.step / checkpoint::kManifestName,
            body + formatted("\"self_hash\": \"{}\"\n}}\n", xxh3_128_hex(body)));
  const int status = in_child([&] {
    limit_memory(std::uint64_t{3} << 30);
    (void)checkpoint::Checkpoint::open(saved.step);
  });
  EXPECT_EQ(shell_code(status), exit_code(ErrorKind::data));
}

}  // namespace
}  // namespace trireme
