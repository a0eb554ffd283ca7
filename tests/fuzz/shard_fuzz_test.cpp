/// Damaged shards and manifests. Plain damage must be found. Damage with a forged checksum may go
/// unnoticed, but must never crash a reader or make it allocate much memory.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.hpp"
#include "core/files/hdf5.hpp"
#include "fuzz/mutator.hpp"
#include "unit/data/small_set.hpp"

namespace trireme {
namespace {

using testing::Mutator;
using testing::TestDirectory;

struct Part {
  std::size_t begin;
  std::size_t end;
};

/// Writes a shard of some hundred tokens, in memory if the system has a directory in memory.
class ShardFile {
 public:
  ShardFile() {
    hdf5_init();
    const auto path = testing::write_documents(
        folder_.path(), testing::numbered_documents(30, 40, 3), 0, 1, {16, 64});
    testing::write_manifest(folder_.path(), 1);
    bytes_ = read_file(path);
    manifest_ = read_file(folder_.path() / data::schema::kManifest);
    const Hdf5File file = Hdf5File::open(path);
    for (const std::string& name : names()) {
      const Hdf5Dataset found = file.dataset(name);
      if (found.count() != 0)
        parts_.push_back({*found.offset, *found.offset + found.count() * size_of(found.dtype)});
    }
    frame_ = data::check_frame(open_read(path).get(), bytes_.size(), path);
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

  [[nodiscard]] const std::string& manifest() const { return manifest_; }

  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }

  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "damaged.h5"; }

  /// `forge`: also writes a matching footer.
  void put(const std::string& content, bool forge) const {
    const Fd fd(::open(path().c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    write_all(fd.get(), std::as_bytes(std::span(content)), 0, path());
    if (!forge) return;
    data::Frame frame = frame_;
    frame.xxh3 = data::hash_frame(fd.get(), frame, path());
    data::write_footer(fd.get(), frame, path());
  }

 private:
  static std::vector<std::string> names() {
    std::vector<std::string> all{data::schema::kTokens, data::schema::kDocOffset,
                                 data::schema::kDocSource, data::schema::kDocSourceOffset,
                                 data::schema::kDocTextHash, data::schema::kIntegrity,
                                 data::schema::kSources, data::schema::kBad,
                                 // The last one is repeated, because its parser has the most forms.
                                 data::schema::kMeta, data::schema::kMeta, data::schema::kMeta};
    for (const std::int64_t length : {16, 64}) {
      for (const char* part : {"/seq_ptr", "/seg_doc", "/seg_begin", "/seg_len", "/targets"})
        all.push_back(data::schema::pack_group(length) + part);
    }
    return all;
  }

  TestDirectory folder_{testing::memory_directory("shard_fuzz")};
  std::string bytes_;
  std::string manifest_;
  std::vector<Part> parts_;
  data::Frame frame_;
};

/// Makes all calls that a reader may make.
void read_everything(const std::filesystem::path& path) {
  const data::TokenShard shard = data::TokenShard::open(path);
  std::vector<std::int64_t> ids(shard.num_tokens());
  shard.read_tokens(0, ids);
  shard.verify_tokens();
  static_cast<void>(shard.document_offsets());
  static_cast<void>(shard.document_sources());
  static_cast<void>(shard.document_source_offsets());
  static_cast<void>(shard.sources_json());
  static_cast<void>(shard.bad_json());
  for (const auto& [length, count] : shard.prepared()) {
    for (std::uint64_t n = 0; n < count; ++n) {
      static_cast<void>(shard.num_targets(length, n));
      static_cast<void>(shard.segments(length, n));
    }
  }
}

/// Returns false for an error of kind data, which is allowed.
template <class Read>
bool is_accepted(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
    return false;
  }
  return true;
}

TEST(Fuzz, ShardsWithDamageAreRefusedAndForgedOnesHarmless) {
  Mutator mutator(3, {"0", "-1", "18446744073709551615", "{", "}", "[", "\"", "\\u0000", "1e999"});
  const ShardFile file;
  std::size_t accepted = 0;
  const long grown = testing::fuzz("shard", testing::fuzz_cases(1'000'000), [&](std::size_t i) {
    std::string bytes = file.bytes();
    const bool forge = i % 8 == 0;
    if (forge) {
      const Part& part = file.parts()[mutator.below(file.parts().size())];
      for (std::size_t edits = 1 + mutator.below(4); edits > 0; --edits)
        mutator.damage(bytes, part.begin, part.end);
    } else {
      mutator.mutate(bytes);
    }
    file.put(bytes, forge);
    const bool good = is_accepted([&] { read_everything(file.path()); });
    accepted += good ? 1 : 0;
    ASSERT_TRUE(!good || forge || bytes == file.bytes()) << "damage was not seen in case " << i;
  });
  std::printf("%zu forged shards were accepted\n", accepted);
  EXPECT_LT(grown, 200);
}

/// Returns `text` with a matching checksum.
std::string forge_manifest(std::string text) {
  constexpr std::string_view kKey = ",\n  \"manifest_xxh3\": \"";
  const std::size_t at = text.rfind(kKey);
  if (at == std::string::npos) return text;
  text.resize(at);
  return formatted("{}{}{}\"\n}}\n", text, kKey, xxh3_128_hex(text));
}

TEST(Fuzz, ManifestsAndMetaAreParsedOrRefused) {
  Mutator mutator(
      4, {"null", "0", "-1", "18446744073709551616", "1e400", "{", "}", "[", "]", "\"",
          "\"counts\"", "\"shards\"", "{}", "[]", ",", ":", "\\ud800", "\xff", "[[[[[[[[[["});
  const ShardFile file;
  const data::TokenShard shard = [&] {
    file.put(file.bytes(), false);
    return data::TokenShard::open(file.path());
  }();
  const std::string meta = data::meta_to_text(shard.meta());
  std::size_t accepted = 0;
  const long grown = testing::fuzz("manifest", testing::fuzz_cases(1'000'000), [&](std::size_t i) {
    if (i % 2 == 0) {
      std::string text = meta;
      mutator.mutate(text);
      accepted +=
          is_accepted([&] { static_cast<void>(data::meta_from_text(text, "meta")); }) ? 1 : 0;
      return;
    }
    std::string text = file.manifest();
    mutator.mutate(text);
    const bool forge = i % 4 == 1;
    const bool good = is_accepted([&] {
      static_cast<void>(data::Manifest::from_text(forge ? forge_manifest(text) : text, "manifest"));
    });
    accepted += good ? 1 : 0;
    ASSERT_TRUE(!good || forge || text == file.manifest()) << text;
  });
  std::printf("%zu accepted\n", accepted);
  EXPECT_LT(grown, 200);
}

}  // namespace
}  // namespace trireme
