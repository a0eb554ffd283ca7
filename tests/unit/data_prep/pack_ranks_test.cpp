/// Any number of ranks and threads makes the same data set from the same inputs, plain and
/// compressed, large and small.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>

#include "comm/agree.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/pack/pack.hpp"
#include "data_prep/pack/pack_directory.hpp"
#include "unit/data_prep/compress.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::data_prep {
namespace {

using testing::files_below;
using testing::gzip;
using testing::in_pieces;
using testing::pack_with;
using testing::TestDirectory;
using testing::write_text;
using testing::zstd;

/// Runs `body` on all ranks. Returns the errors that they agreed on, one for each rank that threw
/// it.
std::vector<std::string> agreed_errors(int ranks,
                                       const std::function<void(comm::Communicator&)>& body) {
  std::mutex mutex;
  std::vector<std::string> errors;
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    try {
      body(world);
    } catch (const comm::AgreedError& error) {
      const std::lock_guard lock(mutex);
      errors.push_back(formatted("{} {}", exit_code(error.kind()), error.what()));
    } catch (const comm::PeerFailed&) {
    }
  });
  return errors;
}

class PackRanks : public ::testing::Test {
 protected:
  PackRanks() {
    std::filesystem::create_directory(path_ / "in");
    const std::string corpus = (path_ / "corpus.jsonl").string();
    write_synth(corpus, 500, 11, false);
    tokenizer_ = testing::tokenizer_of(path_, corpus);
    text_ = read_file(corpus);
    const auto frame = [](auto part) { return zstd(part); };
    write_text(path_ / "in" / "a.jsonl", text_);
    write_text(path_ / "in" / "b.jsonl.gz", gzip(text_));
    write_text(path_ / "in" / "c.jsonl.zst", in_pieces(text_, 30'000, frame));
    write_text(path_ / "in" / "d.jsonl", text_.substr(0, text_.find('\n') + 1));
    write_text(path_ / "in" / "e.jsonl.gz", gzip("") + gzip("not json\n" + text_.substr(0, 900)));
    write_text(path_ / "in" / "f.jsonl", "");
    write_text(path_ / "in" / "g.jsonl.gz", "");
    write_text(path_ / "in" / "h.jsonl.zst", "");
  }

  PackConfig config(const std::string& output) const {
    PackConfig config = testing::pack_config((path_ / "in").string(), path_ / output);
    config.unit_bytes = 12'000;  // about 25 partitions
    return config;
  }

  TestDirectory folder_{"pack_ranks"};
  std::filesystem::path path_ = folder_.path();
  std::string tokenizer_;
  std::string text_;
};

TEST_F(PackRanks, MakeTheSameBytesWhoeverMakesThem) {
  pack_with(config("alone"), tokenizer_, nullptr);
  const auto files = files_below(path_ / "alone");
  ASSERT_GT(files.size(), 22U);
  EXPECT_GT(data::TokenSet::open(path_ / "alone").manifest().counts.bad_lines, 0U);

  for (const int ranks : {1, 2, 4, 7}) {
    for (const int threads : {1, 3}) {
      for (const char* schedule : {"dynamic", "static"}) {
        if (ranks > 2 && (threads == 3) == (schedule[0] == 'd')) continue;  // keeps the test short
        PackConfig shared = config("shared");
        shared.threads = threads;
        shared.schedule = schedule;
        comm::run_ranks(ranks,
                        [&](comm::Communicator& world) { pack_with(shared, tokenizer_, &world); });

        EXPECT_EQ(files_below(path_ / "shared"), files) << ranks << " ranks, " << threads;
        std::filesystem::remove_all(path_ / "shared");
      }
    }
  }
}

// Runs like the tasks of a job array, which share a directory and no MPI.
TEST_F(PackRanks, PartsMakeTheSameBytesInAnyOrderAndTheLastCompletesTheSet) {
  pack_with(config("whole"), tokenizer_, nullptr);
  PackConfig part = config("parts");
  std::size_t made = 0;
  for (const char* one : {"3/3", "1/3", "2/3"}) {
    EXPECT_FALSE(std::filesystem::exists(path_ / "parts" / "manifest.json")) << "before " << one;
    part.part = one;
    const PackReport report = pack_with(part, tokenizer_, nullptr);
    made += report.partitions - report.missing_of_others;
    EXPECT_EQ(report.left, 0U);
    EXPECT_EQ(report.missing_of_others == 0, std::string(one) == "2/3");
  }
  EXPECT_GT(made, std::size_t{22}) << "each made some";
  EXPECT_EQ(files_below(path_ / "parts"), files_below(path_ / "whole"));

  std::filesystem::remove_all(path_ / "parts");
  comm::run_ranks(4, [&](comm::Communicator& world) {
    PackConfig mine = config("parts");
    mine.part = formatted("{}/4", world.rank() + 1);
    pack_with(mine, tokenizer_, nullptr);
  });
  EXPECT_EQ(files_below(path_ / "parts"), files_below(path_ / "whole")) << "at once";
}

TEST_F(PackRanks, APartLeavesAloneWhatIsOfOthers) {
  pack_with(config("whole"), tokenizer_, nullptr);
  std::filesystem::create_directory(path_ / "parts");
  const std::filesystem::path of_other = path_ / "parts" / ".tmp.shard-00001.h5.77";
  write_text(of_other, "half");
  write_text(path_ / "parts" / ".tmp.shard-00000.h5.77", "half");
  PackConfig part = config("parts");
  part.part = "1/2";

  pack_with(part, tokenizer_, nullptr);

  EXPECT_TRUE(std::filesystem::exists(of_other));
  EXPECT_FALSE(std::filesystem::exists(path_ / "parts" / ".tmp.shard-00000.h5.77"));
  for (const char* wrong : {"0/2", "3/2", "2", "1/", "a/2", ""}) {
    part.part = wrong;
    EXPECT_THROW(pack_with(part, tokenizer_, nullptr), Error) << wrong;
  }
}

TEST_F(PackRanks, ContinueWithTheMissingPartitions) {
  pack_with(config("whole"), tokenizer_, nullptr);
  const auto files = files_below(path_ / "whole");
  std::filesystem::copy(path_ / "whole", path_ / "rest", std::filesystem::copy_options::recursive);
  std::filesystem::remove(path_ / "rest" / "manifest.json");
  int removed = 0;
  for (const auto& entry : files) {
    if (entry.first.starts_with("shard-") && removed++ % 3 != 0)
      std::filesystem::remove(path_ / "rest" / entry.first);
  }
  write_text(path_ / "rest" / ".tmp.unit-3",
             "");  // the files of a partition that a killed pack had begun
  write_text(path_ / "rest" / ".tmp.shard-00003.h5.77", "half");

  PackReport report;
  comm::run_ranks(3, [&](comm::Communicator& world) {
    const PackReport mine = pack_with(config("rest"), tokenizer_, &world);
    if (world.rank() == 0) report = mine;
  });

  EXPECT_EQ(files_below(path_ / "rest"), files);
  EXPECT_EQ(report.interrupted, 1U);
  EXPECT_GT(report.kept, 5U);
}

TEST_F(PackRanks, MakeAShardWithDamagedTokensAgain) {
  pack_with(config("set"), tokenizer_, nullptr);
  const auto files = files_below(path_ / "set");
  const std::string shard = path_ / "set" / "shard-00001.h5";
  for (const bool finished : {true, false}) {
    SCOPED_TRACE(finished);
    if (!finished) std::filesystem::remove(path_ / "set" / "manifest.json");
    std::string bytes = read_file(shard);
    std::vector<std::int64_t> ids(16);
    data::TokenShard::open(shard).read_tokens(0, ids);
    const std::vector<std::uint16_t> stored(ids.begin(), ids.end());
    const std::string text(reinterpret_cast<const char*>(stored.data()), 2 * stored.size());
    const std::size_t at = bytes.find(text);
    ASSERT_NE(at, std::string::npos);
    bytes[at] = static_cast<char>(~bytes[at]);
    write_text(shard, bytes);

    comm::run_ranks(
        2, [&](comm::Communicator& world) { pack_with(config("set"), tokenizer_, &world); });

    EXPECT_EQ(files, files_below(path_ / "set"));
  }
}

TEST_F(PackRanks, CompressionChangesNoTokens) {
  const auto frame = [](auto part) { return zstd(part); };
  write_text(path_ / "x.jsonl", text_);
  write_text(path_ / "x.jsonl.gz", gzip(text_));
  write_text(path_ / "x.jsonl.zst", in_pieces(text_, 9'999, frame));
  const auto packed = [&](const std::string& input, const std::string& output) {
    PackConfig asked = config(output);
    asked.inputs = {(path_ / input).string()};
    pack_with(asked, tokenizer_, nullptr);
    return data::TokenSet::open(path_ / output);
  };
  const data::TokenSet plain = packed("x.jsonl", "plain");
  for (const char* suffix : {".gz", ".zst"}) {
    const data::TokenSet other =
        packed(std::string("x.jsonl") + suffix, std::string("set") + suffix);
    ASSERT_EQ(other.num_shards(), plain.num_shards());
    for (std::size_t s = 0; s < plain.num_shards(); ++s) {
      const data::TokenShard& a = plain.shard(s);
      const data::TokenShard& b = other.shard(s);
      ASSERT_EQ(a.document_offsets(), b.document_offsets());
      ASSERT_EQ(a.document_source_offsets(), b.document_source_offsets());
      std::vector<std::int64_t> tokens(a.num_tokens());
      std::vector<std::int64_t> others(b.num_tokens());
      a.read_tokens(0, tokens);
      b.read_tokens(0, others);
      ASSERT_EQ(tokens, others);
      ASSERT_EQ(a.meta().input_xxh3, b.meta().input_xxh3);
      ASSERT_EQ(a.meta().packs, b.meta().packs);
    }
  }
}

TEST_F(PackRanks, NoticeAnInputChangedWithinItsSize) {
  write_synth((path_ / "in" / "m.jsonl").string(), 2000, 12, false);
  write_text(path_ / "in" / "n.jsonl.gz", gzip(read_file(path_ / "in" / "m.jsonl")));
  comm::run_ranks(3,
                  [&](comm::Communicator& world) { pack_with(config("set"), tokenizer_, &world); });
  const auto files = files_below(path_ / "set");
  comm::run_ranks(3, [&](comm::Communicator& world) {
    const PackReport report = pack_with(config("set"), tokenizer_, &world);
    EXPECT_EQ(report.kept, report.partitions);
  });
  EXPECT_EQ(files_below(path_ / "set"), files);

  std::string bytes = read_file(path_ / "in" / "m.jsonl");
  bytes[bytes.size() / 2] ^= 1;
  write_text(path_ / "in" / "m.jsonl", bytes);
  try {
    comm::run_ranks(
        3, [&](comm::Communicator& world) { pack_with(config("set"), tokenizer_, &world); });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("m.jsonl has changed since"), std::string::npos)
        << error.what();
  }
}

TEST_F(PackRanks, CountInvalidRecordsTogether) {
  std::string bad;
  for (int i = 0; i < 30; ++i)
    bad += "bad line number " + std::to_string(i) + "\n" + text_.substr(0, text_.find('\n') + 1);
  write_text(path_ / "bad.jsonl", bad);
  PackConfig asked = config("bad");
  asked.inputs = {(path_ / "bad.jsonl").string()};
  asked.unit_bytes = 500;
  asked.max_bad = 29;  // no partition has that many
  std::string message;
  try {
    comm::run_ranks(3, [&](comm::Communicator& world) { pack_with(asked, tokenizer_, &world); });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    message = error.what();
  }
  EXPECT_NE(message.find("more than --max-bad 29"), std::string::npos) << message;

  asked.max_bad = 30;
  comm::run_ranks(3, [&](comm::Communicator& world) { pack_with(asked, tokenizer_, &world); });
  EXPECT_EQ(data::TokenSet::open(path_ / "bad").manifest().counts.bad_lines, 30U);
}

TEST_F(PackRanks, RefuseAWrongInputOnceAndBeforeAnyShard) {
  const std::string packed = gzip(text_);
  write_text(path_ / "damaged.jsonl.gz", packed.substr(0, packed.size() / 2));
  write_text(path_ / "array.json", "[" + text_);
  const std::pair<std::string, std::string> wrong[] = {
      {"damaged.jsonl.gz", "damaged.jsonl.gz: damaged gzip at byte"},
      {"array.json", "line 2, byte "},
      {"no.jsonl", "no.jsonl"}};
  for (const auto& [name, message] : wrong) {
    PackConfig asked = config("none");
    asked.inputs.push_back((path_ / name).string());

    const auto errors =
        agreed_errors(2, [&](comm::Communicator& world) { pack_with(asked, tokenizer_, &world); });

    ASSERT_EQ(errors.size(), 1U) << name;
    EXPECT_TRUE(errors[0].starts_with("3 ")) << errors[0];
    EXPECT_NE(errors[0].find(message), std::string::npos) << errors[0];
    EXPECT_FALSE(std::filesystem::exists(path_ / "none")) << name;
  }
}

TEST_F(PackRanks, LeaveNothingBehindIfNoShardIsMade) {
  write_text(path_ / "bad.jsonl", "{\"text\": \"\\ud800\"}\n");
  PackConfig asked = config("none");
  asked.inputs = {(path_ / "bad.jsonl").string()};
  try {
    comm::run_ranks(2, [&](comm::Communicator& world) { pack_with(asked, tokenizer_, &world); });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(path_ / "none"));

  write_text(path_ / "bad.jsonl", "{\"text\": \"\"}\n");
  const auto errors =
      agreed_errors(2, [&](comm::Communicator& world) { pack_with(asked, tokenizer_, &world); });
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_NE(errors[0].find("no document in"), std::string::npos) << errors[0];
  EXPECT_FALSE(std::filesystem::exists(path_ / "none"));
}

TEST_F(PackRanks, AnyRankCanRemoveWhatRank0HasPutThere) {
  const text::Tokenizer tokenizer = load_tokenizer(tokenizer_);
  comm::run_ranks(2, [&](comm::Communicator& world) {
    PackDirectory folder((path_ / "none").string(), data::Manifest(), 3, PackPart(), all_shards(3));
    folder.prepare(&tokenizer, world);
    world.barrier();
    if (world.rank() == 0) {
      const MarkerFile marker = folder.mark(2);
      EXPECT_TRUE(std::filesystem::exists(path_ / "none" / "tokenizer"));
      world.barrier();
      world.barrier();
    } else {
      world.barrier();
      folder.remove_without_shards();  // while rank 0 works on a shard
      EXPECT_FALSE(std::filesystem::exists(path_ / "none"));
      world.barrier();
    }
  });
}

/// Limits the size of files until destruction, like a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }

  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  FileSizeLimit(FileSizeLimit&&) = delete;
  FileSizeLimit& operator=(FileSizeLimit&&) = delete;

 private:
  rlimit before_{};
};

TEST_F(PackRanks, LeaveNothingHalfWhereTheDiskEnds) {
  pack_with(config("whole"), tokenizer_, nullptr);
  for (const rlim_t bytes : {100U, 3000U, 9000U}) {  // a shard has about 10,000
    const FileSizeLimit limit(bytes);
    try {
      pack_with(config("full"), tokenizer_, nullptr);
      FAIL() << "no error at " << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::resource) << error.what();
      EXPECT_NE(std::string(error.what()).find("full"), std::string::npos) << error.what();
    }
    EXPECT_FALSE(std::filesystem::exists(path_ / "full")) << bytes;
  }
  pack_with(config("full"), tokenizer_, nullptr);

  EXPECT_EQ(files_below(path_ / "full"), files_below(path_ / "whole"));
}

}  // namespace
}  // namespace trireme::data_prep
