#include "data_prep/import/import.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/error.hpp"
#include "data/order/samples.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::data_prep {
namespace {

using testing::files_below;
using testing::TestDirectory;

using Ids = std::vector<std::int64_t>;

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Returns documents of 1..max_length ids in [0, vocab).
std::vector<Ids> random_documents(std::size_t count, int max_length, int vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Ids> documents(count);
  for (Ids& document : documents) {
    document.resize(1 + random() % static_cast<unsigned>(max_length));
    for (std::int64_t& id : document)
      id = static_cast<std::int64_t>(random() % static_cast<unsigned>(vocab));
  }
  return documents;
}

/// Writes the index file from the description of its format. `borders` are the first sequences of
/// all documents, and the number of sequences.
std::string index_bytes(std::uint8_t code, const std::vector<std::int32_t>& lengths,
                        std::int64_t width, const Ids& borders) {
  std::string bytes("MMIDIDX\0\0", 9);
  put(bytes, std::uint64_t{1});
  put(bytes, code);
  put(bytes, std::uint64_t{lengths.size()});
  put(bytes, std::uint64_t{borders.size()});
  for (const std::int32_t length : lengths) put(bytes, length);
  std::int64_t at = 0;
  for (const std::int32_t length : lengths) {
    put(bytes, at);
    at += length * width;
  }
  for (const std::int64_t border : borders) put(bytes, border);
  return bytes;
}

template <class T>
void write_megatron(const std::filesystem::path& prefix, std::uint8_t code,
                    const std::vector<Ids>& documents) {
  std::string tokens;
  std::vector<std::int32_t> lengths;
  Ids borders;
  for (const Ids& document : documents) {
    borders.push_back(static_cast<std::int64_t>(lengths.size()));
    // Every third document has two sequences, like after Megatron's sentence splitting.
    const std::size_t cut = lengths.size() % 3 == 0 ? document.size() / 2 : 0;
    if (cut != 0) lengths.push_back(static_cast<std::int32_t>(cut));
    lengths.push_back(static_cast<std::int32_t>(document.size() - cut));
    for (const std::int64_t id : document) put(tokens, static_cast<T>(id));
  }
  borders.push_back(static_cast<std::int64_t>(lengths.size()));
  write_bytes(prefix.string() + ".bin", tokens);
  write_bytes(prefix.string() + ".idx", index_bytes(code, lengths, sizeof(T), borders));
}

template <class T>
void write_llm_c(const std::filesystem::path& path, std::int32_t magic, std::int32_t version,
                 const Ids& ids) {
  std::string bytes;
  put(bytes, magic);
  put(bytes, version);
  put(bytes, static_cast<std::int32_t>(ids.size()));
  bytes.resize(1024, '\0');
  for (const std::int64_t id : ids) put(bytes, static_cast<T>(id));
  write_bytes(path, bytes);
}

std::vector<Ids> documents_of(const data::TokenSet& set) {
  std::vector<Ids> documents;
  for (std::size_t s = 0; s < set.num_shards(); ++s) {
    const auto offsets = set.shard(s).document_offsets();
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
      Ids& ids = documents.emplace_back(offsets[d + 1] - offsets[d]);
      set.shard(s).read_tokens(offsets[d], ids);
    }
  }
  return documents;
}

class Import : public ::testing::Test {
 protected:
  ImportConfig config(const std::string& format, const std::string& input) {
    ImportConfig config;
    config.format = format;
    config.inputs = {(folder_.path() / input).string()};
    config.output = (folder_.path() / "set").string();
    config.vocab_size = 60000;
    config.seq_len = 64;
    config.progress = "none";
    return config;
  }

  /// Imports into a new directory and checks every byte of the result.
  data::TokenSet import(ImportConfig config) {
    config.output = (folder_.path() / ("set" + std::to_string(sets_++))).string();
    import_tokens(config, nullptr);
    data::TokenSet set = data::TokenSet::open(config.output);
    set.verify(/*fast=*/false);
    return set;
  }

  std::string refusal(const ImportConfig& config) {
    try {
      import(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TestDirectory folder_{"import"};
  int sets_ = 0;
};

TEST_F(Import, MegatronSetsOfAllIntegerTypes) {
  const auto small = random_documents(200, 90, 120, 1);
  const auto large = random_documents(300, 90, 50000, 2);
  write_megatron<std::uint8_t>(folder_.path() / "u8", 1, small);
  write_megatron<std::int8_t>(folder_.path() / "i8", 2, small);
  write_megatron<std::int16_t>(folder_.path() / "i16", 3, small);
  write_megatron<std::int32_t>(folder_.path() / "i32", 4, large);
  write_megatron<std::int64_t>(folder_.path() / "i64", 5, large);
  write_megatron<std::uint16_t>(folder_.path() / "u16", 8, large);

  for (const char* name : {"u8", "i8", "i16"})
    EXPECT_EQ(documents_of(import(config("megatron", name))), small) << name;
  for (const char* name : {"i32.idx", "i64.bin", "u16"})
    EXPECT_EQ(documents_of(import(config("megatron", name))), large) << name;
  ImportConfig wide = config("megatron", "i32");
  wide.vocab_size = 100000;  // tokens of 4 bytes
  EXPECT_EQ(documents_of(import(wide)), large);
}

/// A cache stores the content under hashes, and the directory of a set has links to it.
TEST_F(Import, FindsTheIndexBesideALinkToTheTokens) {
  const auto documents = random_documents(9, 20, 50000, 7);
  write_megatron<std::uint16_t>(folder_.path() / "linked", 8, documents);
  std::filesystem::create_directory(folder_.path() / "blobs");
  for (const auto& [name, hash] : {std::pair{"linked.bin", "1f3a"}, {"linked.idx", "07c2"}}) {
    std::filesystem::rename(folder_.path() / name, folder_.path() / "blobs" / hash);
    std::filesystem::create_symlink(folder_.path() / "blobs" / hash, folder_.path() / name);
  }

  EXPECT_EQ(documents_of(import(config("megatron", "linked"))), documents);

  std::filesystem::create_symlink(folder_.path() / "many.bin", folder_.path() / "alone.bin");
  write_megatron<std::uint16_t>(folder_.path() / "many", 8, documents);
  EXPECT_EQ(documents_of(import(config("megatron", "alone"))), documents) << "beside the target";
}

TEST_F(Import, ShardsAreCutAtDocumentsAndTrain) {
  const auto documents = random_documents(300, 90, 50000, 2);
  write_megatron<std::uint16_t>(folder_.path() / "many", 8, documents);
  ImportConfig asked = config("megatron", "many");
  asked.shard_tokens = 1000;
  asked.seq_len = 128;  // no document is cut

  const data::TokenSet set = import(asked);

  EXPECT_GT(set.num_shards(), 10U);
  EXPECT_EQ(documents_of(set), documents);
  std::uint64_t at = 0;  // the position of each document in the input
  std::size_t d = 0;
  for (std::size_t s = 0; s < set.num_shards(); ++s) {
    for (const std::uint64_t offset : set.shard(s).document_source_offsets()) {
      ASSERT_EQ(offset, at);
      at += documents[d++].size() * 2;
    }
  }
  const data::SampleSet samples(set, 128);
  EXPECT_TRUE(samples.prepared());
  EXPECT_EQ(set.manifest().counts.target_tokens, set.num_tokens() - set.num_documents());
}

TEST_F(Import, DocumentsLongerThanAShardAreCutAndNothingIsLost) {
  const auto documents = random_documents(5, 600, 50000, 4);
  write_megatron<std::uint16_t>(folder_.path() / "long", 8, documents);
  Ids all;
  for (const Ids& document : documents) all.insert(all.end(), document.begin(), document.end());
  for (const std::int64_t part : {13, 100, 333}) {
    ImportConfig asked = config("megatron", "long");
    asked.shard_tokens = part;
    Ids joined;
    std::size_t longest = 0;
    const data::TokenSet set = import(asked);
    for (const Ids& document : documents_of(set))
      joined.insert(joined.end(), document.begin(), document.end());
    for (const data::ShardEntry& shard : set.manifest().shards)
      longest = std::max<std::size_t>(longest, shard.counts.tokens);

    ASSERT_EQ(joined, all) << part;
    EXPECT_LT(longest, static_cast<std::size_t>(2 * part + 1));
  }
}

TEST_F(Import, TheLastDocumentIsNotCutWhenNoneStartsInTheLastPart) {
  std::vector<Ids> documents(30, Ids(50, 7));
  documents.back().resize(90);
  Ids all;
  for (Ids& document : documents) {
    document.front() = 50256;
    all.insert(all.end(), document.begin(), document.end());
  }
  write_megatron<std::uint16_t>(folder_.path() / "m", 8, documents);
  write_llm_c<std::uint16_t>(folder_.path() / "l.bin", 20240520, 1, all);
  ASSERT_EQ(all.size(),
            1540U);  // the last document begins at 1450; shards of 100 and 750 tokens begin later
  for (const auto& [format, input] : {std::pair{"megatron", "m"}, std::pair{"llm.c", "l.bin"}}) {
    for (const std::int64_t part : {100, 750, 1539}) {
      ImportConfig asked = config(format, input);
      asked.shard_tokens = part;
      EXPECT_EQ(documents_of(import(asked)), documents) << format << ' ' << part;
    }
    ImportConfig asked = config(format, input);
    asked.shard_tokens = 80;  // the last document is longer, so it is cut
    EXPECT_EQ(documents_of(import(asked)).size(), 31U);
  }
}

TEST_F(Import, LlmCFilesOfBothMagicsWithEitherPlaceOfTheToken) {
  auto documents = random_documents(60, 50, 40000, 3);
  for (Ids& document : documents) document.front() = 50256;
  Ids starts;  // <eot> text <eot> text
  Ids ends;    // text <eot> text <eot>
  for (const Ids& document : documents) {
    starts.insert(starts.end(), document.begin(), document.end());
    ends.insert(ends.end(), document.begin() + 1, document.end());
    ends.push_back(50256);
  }
  std::vector<Ids> ended;
  for (const Ids& document : documents) {
    ended.emplace_back(document.begin() + 1, document.end()).push_back(50256);
  }
  write_llm_c<std::uint16_t>(folder_.path() / "starts.bin", 20240520, 1, starts);
  write_llm_c<std::uint16_t>(folder_.path() / "ends.bin", 20240520, 1, ends);
  write_llm_c<std::uint32_t>(folder_.path() / "wide.bin", 20240801, 7, starts);

  EXPECT_EQ(documents_of(import(config("llm.c", "starts.bin"))), documents);
  EXPECT_EQ(documents_of(import(config("llm.c", "ends.bin"))), ended);
  ImportConfig wide = config("llm.c", "wide.bin");
  wide.vocab_size = 128256;
  EXPECT_EQ(documents_of(import(wide)).size(), 1U) << "its border is 128000";
  wide.eot_id = 50256;
  wide.shard_tokens = 100;
  EXPECT_EQ(documents_of(import(wide)), documents);
  wide.eot = "end";  // for a file that begins with it: the first document has nothing else
  EXPECT_EQ(documents_of(import(wide)).front(), Ids{50256});
  wide.eot_id = -1;
  wide.shard_tokens = 1 << 20;
  EXPECT_EQ(documents_of(import(wide)), std::vector<Ids>{starts});
}

TEST_F(Import, SeveralFilesAreOneSetInOrder) {
  write_llm_c<std::uint16_t>(folder_.path() / "1.bin", 20240520, 1, {50256, 1, 2, 50256, 3});
  write_llm_c<std::uint16_t>(folder_.path() / "2.bin", 20240520, 1, {4, 50256, 5});
  write_llm_c<std::uint16_t>(folder_.path() / "3.bin", 20240520, 1, {});
  ImportConfig asked = config("llm.c", "1.bin");
  asked.inputs.push_back((folder_.path() / "2.bin").string());
  asked.inputs.push_back((folder_.path() / "3.bin").string());
  asked.eot = "start";

  const data::TokenSet set = import(asked);

  EXPECT_EQ(documents_of(set), (std::vector<Ids>{{50256, 1, 2}, {50256, 3}, {4}, {50256, 5}}));
  EXPECT_EQ(set.manifest().sources.size(), 3U);
  EXPECT_EQ(set.manifest().tokenizer_hash, "none");
}

TEST_F(Import, ContinuesAfterAKillWithTheSameBytesAndRefusesAnotherImport) {
  write_megatron<std::uint16_t>(folder_.path() / "m", 8, random_documents(300, 90, 50000, 2));
  ImportConfig asked = config("megatron", "m");
  asked.shard_tokens = 2000;
  const data::TokenSet whole = import(asked);
  asked.output = (folder_.path() / "again").string();
  import_tokens(asked, nullptr);
  std::filesystem::remove(folder_.path() / "again" / "manifest.json");
  std::filesystem::remove(folder_.path() / "again" / "shard-00002.h5");
  std::filesystem::resize_file(folder_.path() / "again" / "shard-00001.h5", 5000);  // damaged

  const ImportReport report = import_tokens(asked, nullptr);

  EXPECT_EQ(report.kept + 2, report.partitions);
  EXPECT_EQ(files_below(asked.output), files_below(whole.directory()));
  asked.seq_len = 32;
  EXPECT_THROW(import_tokens(asked, nullptr), Error);
}

TEST_F(Import, NoticesAnInputChangedWithinItsSize) {
  write_megatron<std::uint16_t>(folder_.path() / "m", 8, random_documents(3000, 90, 50000, 2));
  ImportConfig asked = config("megatron", "m");
  asked.shard_tokens = 20000;
  import_tokens(asked, nullptr);
  EXPECT_EQ(import_tokens(asked, nullptr).kept, 7U);
  std::string bytes = read_file(folder_.path() / "m.bin");
  ASSERT_GT(bytes.size(), 200'000U);
  bytes[bytes.size() / 2 & ~std::size_t{1}] ^= 1;
  write_bytes(folder_.path() / "m.bin", bytes);

  try {
    import_tokens(asked, nullptr);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("m.bin has changed since"), std::string::npos)
        << error.what();
  }
}

TEST_F(Import, KeepsTheTokenizerAndChecksIdsAgainstIt) {
  write_synth((folder_.path() / "corpus.jsonl").string(), 200, 1, false);
  const std::string tokenizer =
      testing::tokenizer_of(folder_.path(), (folder_.path() / "corpus.jsonl").string());
  write_megatron<std::uint16_t>(folder_.path() / "good", 8, random_documents(20, 90, 400, 2));
  write_megatron<std::uint16_t>(folder_.path() / "bad", 8, {{1, 2}, {3, 59999, 4}});
  ImportConfig asked = config("megatron", "good");
  asked.tokenizer = tokenizer;
  asked.vocab_size = 0;

  const data::TokenSet set = import(asked);

  EXPECT_EQ(set.vocab_size(), 400U);
  EXPECT_TRUE(set.tokenizer_files().contains("tokenizer.json"));
  asked.inputs = {(folder_.path() / "bad").string()};
  const std::string told = refusal(asked);
  EXPECT_NE(told.find("bad.bin:6: token 59999"), std::string::npos) << told;
}

TEST_F(Import, RefusesDamagedAndForeignFilesByName) {
  const std::vector<std::int32_t> lengths{2, 2};
  const auto with_index = [&](const std::string& index) {
    write_bytes(folder_.path() / "x.bin", std::string(8, '\1'));
    write_bytes(folder_.path() / "x.idx", index);
    return refusal(config("megatron", "x"));
  };
  EXPECT_EQ(with_index(index_bytes(8, lengths, 2, {0, 1, 2})), "");
  EXPECT_NE(with_index(index_bytes(8, lengths, 2, {0, 1, 2}) + "\1\1").find("multimodal"),
            std::string::npos);
  EXPECT_NE(with_index(index_bytes(7, lengths, 2, {0, 1, 2})).find("token type 7"),
            std::string::npos);
  EXPECT_NE(with_index("MMIDIDX").find("no MMIDIDX"), std::string::npos);
  EXPECT_NE(with_index(index_bytes(8, lengths, 2, {0, 1, 2}) + "\1").find("bytes"),
            std::string::npos);
  EXPECT_NE(with_index(index_bytes(8, {2, 1}, 2, {0, 1, 2})).find("need 6"), std::string::npos);
  EXPECT_NE(with_index(index_bytes(8, lengths, 4, {0, 1, 2})).find("out of order"),
            std::string::npos);
  EXPECT_NE(with_index(index_bytes(8, {1, 1, 2}, 2, {0, 2, 1, 3})).find("out of order"),
            std::string::npos);
  EXPECT_NE(with_index(index_bytes(8, lengths, 2, {0, 1})).find("must be 0 to 2"),
            std::string::npos);
  std::string huge = index_bytes(8, lengths, 2, {0, 1, 2});
  std::memset(huge.data() + 18, 0x7f, 8);  // number of sequences
  EXPECT_NE(with_index(huge).find("need"), std::string::npos);

  write_llm_c<std::uint16_t>(folder_.path() / "eval.bin", 20240522, 1, {1});
  EXPECT_NE(refusal(config("llm.c", "eval.bin")).find("magic 20240522"), std::string::npos);
  write_llm_c<std::uint16_t>(folder_.path() / "cut.bin", 20240520, 1, {1, 2, 3});
  std::filesystem::resize_file(folder_.path() / "cut.bin", 1024 + 5);
  EXPECT_NE(refusal(config("llm.c", "cut.bin")).find("need 1030"), std::string::npos);
  write_llm_c<std::uint16_t>(folder_.path() / "none.bin", 20240520, 1, {});
  EXPECT_NE(refusal(config("llm.c", "none.bin")).find("no tokens"), std::string::npos);
  ImportConfig without = config("llm.c", "cut.bin");
  without.vocab_size = 0;
  EXPECT_NE(refusal(without).find("--tokenizer"), std::string::npos);
}

}  // namespace
}  // namespace trireme::data_prep
