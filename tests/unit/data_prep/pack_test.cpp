#include "data_prep/pack/pack.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/identity.hpp"
#include "data_prep/inspect/inspect.hpp"
#include "text/tokenizer.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::data_prep {
namespace {

using testing::files_below;
using testing::pack_config;
using testing::pack_with;
using testing::TestDirectory;
using testing::write_text;

class Pack : public ::testing::Test {
 protected:
  Pack() {
    write_synth(corpus_, 400, 3, false);
    tokenizer_ = testing::tokenizer_of(path_, corpus_);
  }

  std::string error_of(const PackConfig& config, ErrorKind kind) {
    try {
      pack_with(config, tokenizer_, nullptr);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "no error";
  }

  TestDirectory folder_{"pack"};
  std::filesystem::path path_ = folder_.path();
  std::string corpus_ = (path_ / "corpus.jsonl").string();
  std::string tokenizer_;
};

TEST_F(Pack, HoldsEachTextBetweenBeginAndEndWithItsPlace) {
  pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);

  const data::TokenSet set = data::TokenSet::open(path_ / "set");
  const text::Tokenizer tokenizer = text::Tokenizer::from_files(set.tokenizer_files(), "set");
  const std::string lines = read_file(corpus_);
  ASSERT_GT(set.num_shards(), 2U);
  ASSERT_EQ(set.num_documents(), 400U);
  std::uint64_t index = 0;
  for (std::size_t s = 0; s < set.num_shards(); ++s) {
    const auto offsets = set.shard(s).document_offsets();
    const auto places = set.shard(s).document_source_offsets();
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d, ++index) {
      std::vector<std::int64_t> ids(offsets[d + 1] - offsets[d]);
      set.shard(s).read_tokens(offsets[d], ids);
      const std::string text = synth_document(3, index);
      ASSERT_EQ(ids.front(), set.bos_id());
      ASSERT_EQ(ids.back(), set.eos_id());
      ASSERT_EQ(tokenizer.decode(std::vector<std::uint32_t>(ids.begin() + 1, ids.end() - 1)), text);
      const std::string line = lines.substr(places[d], lines.find('\n', places[d]) - places[d]);
      ASSERT_EQ(nlohmann::json::parse(line)["text"], text);
    }
  }
  EXPECT_NO_THROW(set.verify(false));
}

TEST_F(Pack, BytesDoNotDependOnThreadsOrOrder) {
  PackConfig one = pack_config(corpus_, path_ / "one");
  PackConfig three = pack_config(corpus_, path_ / "three");
  three.threads = 3;
  pack_with(one, tokenizer_, nullptr);
  pack_with(three, tokenizer_, nullptr);
  const auto files = files_below(path_ / "one");
  EXPECT_EQ(files, files_below(path_ / "three"));

  // In this directory, another order of work has written the later shards, and a killed writer has
  // left temporary files.
  std::filesystem::copy(path_ / "one", path_ / "rest", std::filesystem::copy_options::recursive);
  std::filesystem::remove(path_ / "rest" / "manifest.json");
  std::filesystem::remove(path_ / "rest" / "shard-00000.h5");
  std::filesystem::remove(path_ / "rest" / "shard-00002.h5");
  write_text(path_ / "rest" / ".tmp.shard-00002.h5.77", "half a shard");
  const PackReport report = pack_with(pack_config(corpus_, path_ / "rest"), tokenizer_, nullptr);

  EXPECT_EQ(report.kept, report.partitions - 2);
  EXPECT_EQ(files, files_below(path_ / "rest"));
}

TEST_F(Pack, BytesDoNotDependOnRanks) {
  pack_with(pack_config(corpus_, path_ / "alone"), tokenizer_, nullptr);
  for (const int ranks : {1, 2, 4}) {
    const PackConfig config = pack_config(corpus_, path_ / ("ranks" + std::to_string(ranks)));

    comm::run_ranks(ranks,
                    [&](comm::Communicator& world) { pack_with(config, tokenizer_, &world); });

    EXPECT_EQ(files_below(path_ / "alone"), files_below(config.output)) << ranks;
  }
}

TEST_F(Pack, DoesNothingWhenDone) {
  pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);
  const auto before = std::filesystem::last_write_time(path_ / "set" / "shard-00000.h5");

  const PackReport report = pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);

  EXPECT_EQ(report.kept, report.partitions);
  EXPECT_EQ(before, std::filesystem::last_write_time(path_ / "set" / "shard-00000.h5"));
}

/// Replaces one letter in the middle of the file; size and both ends stay.
void change_a_letter(const std::string& path, std::size_t from) {
  std::string bytes = read_file(path);
  const std::size_t at = bytes.find_first_of("abcdefghijklm", from);
  bytes[at] = 'z';
  write_text(path, bytes);
}

TEST_F(Pack, NoticesAnInputChangedWithinItsSize) {
  write_synth(corpus_, 2000, 3, true);  // longer than the ends that fingerprints include
  ASSERT_GT(std::filesystem::file_size(corpus_), 300'000U);
  pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);
  const auto files = files_below(path_ / "set");
  const std::string before = read_file(corpus_);

  change_a_letter(corpus_, 150'000);
  const std::string told = error_of(pack_config(corpus_, path_ / "set"), ErrorKind::usage);
  EXPECT_NE(told.find("corpus.jsonl has changed since"), std::string::npos) << told;
  EXPECT_NE(told.find("shard-00007.h5"), std::string::npos) << told;
  EXPECT_NE(told.find("use another --output"), std::string::npos) << told;

  std::filesystem::remove(path_ / "set" / "manifest.json");  // like after a kill
  std::filesystem::remove(path_ / "set" / "shard-00001.h5");
  EXPECT_NE(error_of(pack_config(corpus_, path_ / "set"), ErrorKind::usage).find("has changed"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_ / "set" / "manifest.json"));

  write_text(corpus_, before);
  pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);
  EXPECT_EQ(files_below(path_ / "set"), files);
}

TEST_F(Pack, MakesADamagedShardAgain) {
  pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);
  const auto files = files_below(path_ / "set");
  std::filesystem::remove(path_ / "set" / "manifest.json");
  std::filesystem::resize_file(path_ / "set" / "shard-00001.h5", 999);

  pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);

  EXPECT_EQ(files, files_below(path_ / "set"));
}

TEST_F(Pack, MakesALostShardOfAFinishedSetAgain) {
  pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);
  const auto files = files_below(path_ / "set");
  std::filesystem::remove(path_ / "set" / "shard-00001.h5");

  pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);

  EXPECT_EQ(files, files_below(path_ / "set"));
}

TEST_F(Pack, RefusesADirectoryOfAnotherPackOrProgram) {
  pack_with(pack_config(corpus_, path_ / "set"), tokenizer_, nullptr);
  PackConfig other = pack_config(corpus_, path_ / "set");
  other.documents.text.eos = false;
  EXPECT_NE(error_of(other, ErrorKind::usage)
                .find("a different set: --eos is true in the data set, false in this command; use"),
            std::string::npos);
  other.seq_len = 32;
  const std::string message = error_of(other, ErrorKind::usage);
  EXPECT_NE(message.find("--seq-len is 64 in the data set, 32 in this command; --eos"),
            std::string::npos)
      << message;

  std::filesystem::remove(path_ / "set" / "manifest.json");
  const std::string of_shard = error_of(other, ErrorKind::usage);
  EXPECT_NE(of_shard.find("shard-00000.h5"), std::string::npos);
  EXPECT_NE(of_shard.find("--seq-len is 64 in the data set, 32 in this command; use"),
            std::string::npos)
      << of_shard;

  write_synth(corpus_, 399, 3, true);
  EXPECT_NE(
      error_of(pack_config(corpus_, path_ / "set"), ErrorKind::usage).find("use another --output"),
      std::string::npos);

  std::filesystem::create_directory(path_ / "mine");
  write_text(path_ / "mine" / "thesis.tex", "hello");
  EXPECT_NE(error_of(pack_config(corpus_, path_ / "mine"), ErrorKind::usage).find("thesis.tex"),
            std::string::npos);
  EXPECT_EQ(read_file(path_ / "mine" / "thesis.tex"), "hello");
}

TEST_F(Pack, RefusesWhatIsNotBuilt) {
  PackConfig config = pack_config(corpus_, path_ / "set");
  config.documents.kind = "rlhf";
  EXPECT_NE(error_of(config, ErrorKind::usage).find("must be one of pretrain, sft, dpo, kto, rl"),
            std::string::npos);
  config.documents.kind = "pretrain";
  config.seq_len = 1;
  EXPECT_NE(error_of(config, ErrorKind::usage).find("--seq-len"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_ / "set"));
}

TEST_F(Pack, RefusesTooManyShardsForADirectory) {
  write_synth(corpus_, 700, 3, true);
  PackConfig config = pack_config(corpus_, path_ / "set");
  config.unit_bytes = 1;
  const std::uint64_t bytes = std::filesystem::file_size(corpus_);
  ASSERT_GT(bytes, 100'000U);
  const std::string told = error_of(config, ErrorKind::usage);
  EXPECT_NE(told.find("would make " + std::to_string(bytes) + " shards"), std::string::npos)
      << told;
  EXPECT_NE(told.find("give at least 2"), std::string::npos) << told;
  EXPECT_FALSE(std::filesystem::exists(path_ / "set"));
}

TEST_F(Pack, AnOutputThatCannotBeWrittenIsAMistakeOfUse) {
  write_text(path_ / "file", "mine");
  EXPECT_NE(error_of(pack_config(corpus_, path_ / "file"), ErrorKind::usage).find("choose"),
            std::string::npos);
  EXPECT_NE(error_of(pack_config(corpus_, path_ / "file" / "below"), ErrorKind::usage).find("file"),
            std::string::npos);
  EXPECT_EQ(read_file(path_ / "file"), "mine");
  EXPECT_NE(error_of(pack_config(corpus_, "/proc/none"), ErrorKind::usage).find("/proc/none"),
            std::string::npos);
}

TEST_F(Pack, CountsAndListsInvalidRecords) {
  const std::string good = "{\"text\": \"one\"}\n";
  const std::string bad = "{\"text\": 1}\nnonsense\n\n{\"text\": \"\"}\n" + good;
  const std::string input = (path_ / "bad.jsonl").string();
  write_text(input, good + bad);
  PackConfig config = pack_config(input, path_ / "bad");

  pack_with(config, tokenizer_, nullptr);

  const auto json = nlohmann::json::parse(inspect_json(data::TokenSet::open(path_ / "bad")));
  EXPECT_EQ(json["kind"], "pretrain");
  EXPECT_EQ(json["documents"], 2);
  EXPECT_EQ(json["bad_lines"], 2);
  EXPECT_EQ(json["dropped"], 1);
  EXPECT_EQ(json["truncated"], 0);
  EXPECT_GT(json["target_tokens"], 0);
  ASSERT_EQ(json["bad"].size(), 2U);
  EXPECT_EQ(json["bad"][0], "bad.jsonl:16: field 'text' is not a text");
  EXPECT_EQ(json["bad"][1].get<std::string>().substr(0, 13), "bad.jsonl:28:");

  config.output = (path_ / "bad_limit").string();
  config.max_bad = 1;
  EXPECT_NE(error_of(config, ErrorKind::data).find("--max-bad 1"), std::string::npos);
  config.max_bad = 2;
  EXPECT_EQ(error_of(config, ErrorKind::data), "no error");
}

TEST_F(Pack, NamesThePlaceOfBadText) {
  const std::string input = (path_ / "surrogate.jsonl").string();
  write_text(input, "{\"text\": \"one\"}\n{\"text\": \"a\\ud800\"}\n");
  PackConfig config = pack_config(input, path_ / "bad");

  EXPECT_NE(error_of(config, ErrorKind::data).find("surrogate.jsonl, line 2, byte 16:"),
            std::string::npos);

  config.output = (path_ / "replaced").string();
  config.documents.on_bad_text = "replace";
  pack_with(config, tokenizer_, nullptr);
  EXPECT_EQ(data::TokenSet::open(path_ / "replaced").manifest().counts.replaced_chars, 1U);
}

TEST_F(Pack, RefusesInputsWithoutAnyDocument) {
  const std::string input = (path_ / "none.jsonl").string();
  write_text(input, "{\"txt\": \"one\"}\n");
  EXPECT_EQ(error_of(pack_config(input, path_ / "none"), ErrorKind::data),
            formatted("no document in {}: 1 invalid record; the first (FILE:BYTE): none.jsonl:0: "
                      "no field 'text'",
                      input));

  write_text(input, "{\"text\": \"\"}\n");
  EXPECT_EQ(error_of(pack_config(input, path_ / "blank"), ErrorKind::data),
            formatted("no document in {}: dropped 1 of 1 texts: field 'text' (--field) is "
                      "empty",
                      input));

  write_text(input, "");
  EXPECT_EQ(error_of(pack_config(input, path_ / "empty"), ErrorKind::data),
            formatted("no document in {}: no record was found", input));
}

TEST_F(Pack, ADirectoryIsFreeAgainAfterAPackWithoutAnyDocument) {
  write_text(path_ / "in.jsonl", "{\"txt\": \"a\"}\n");
  PackConfig config = pack_config((path_ / "in.jsonl").string(), path_ / "set");
  EXPECT_NE(error_of(config, ErrorKind::data).find("no field 'text'"), std::string::npos);

  config.documents.text.field = "txt";
  EXPECT_EQ(error_of(config, ErrorKind::usage), "no error");
  EXPECT_EQ(data::TokenSet::open(config.output).num_documents(), 1U);
}

TEST_F(Pack, RefusesANameThatIsNoText) {
  write_text(path_ / "in\xff.jsonl", "{\"text\": \"a\"}\n");
  const PackConfig config = pack_config((path_ / "in\xff.jsonl").string(), path_ / "set");

  EXPECT_NE(error_of(config, ErrorKind::usage).find("the name is not UTF-8"), std::string::npos);
}

TEST_F(Pack, TreatsAddedTokensInTextsAsAsked) {
  const std::string input = (path_ / "special.jsonl").string();
  write_text(input, "{\"text\": \"<|im_end|>\"}\n");
  PackConfig config = pack_config(input, path_ / "allow");
  pack_with(config, tokenizer_, nullptr);
  config.output = (path_ / "text").string();
  config.documents.text.special_in_text = "text";
  pack_with(config, tokenizer_, nullptr);

  EXPECT_EQ(data::TokenSet::open(path_ / "allow").num_tokens(), 3U);
  EXPECT_GT(data::TokenSet::open(path_ / "text").num_tokens(), 5U);
}

TEST(Synth, IsAFunctionOfSeedAndIndex) {
  EXPECT_EQ(synth_document(1, 7), synth_document(1, 7));
  int equal = 0;
  for (std::uint64_t i = 0; i < 200; ++i) equal += synth_document(1, i) == synth_document(2, i);
  EXPECT_LT(equal, 10);
}

TEST(Synth, OverwritesNothingElse) {
  const TestDirectory folder("synth");
  const std::string path = (folder.path() / "c.jsonl").string();
  write_synth(path, 10, 1, false);

  EXPECT_NO_THROW(write_synth(path, 10, 1, false));
  EXPECT_THROW(write_synth(path, 11, 1, false), Error);
  EXPECT_NO_THROW(write_synth(path, 11, 1, true));
}

/// Existing data sets are identified by these bytes.
TEST_F(Pack, IdentityHasWhatDecidesBytesAndNothingElse) {
  PackConfig config = pack_config(corpus_, path_ / "set");
  pack_with(config, tokenizer_, nullptr);
  const std::string identity = data::TokenSet::open(config.output).manifest().config_json;
  EXPECT_EQ(identity, R"({"field":"text","bos":true,"eos":true,"special_in_text":"allow",)"
                      R"("on_bad_text":"error","unit_bytes":20000,"packing_rule":2})");

  config.schedule = "static";
  config.threads = 2;
  config.max_bad = 3;
  pack_with(config, tokenizer_, nullptr);  // packs an equal data set
  config.documents.text.eos = false;
  EXPECT_NE(error_of(config, ErrorKind::usage)
                .find("--eos is true in the data set, false in this command"),
            std::string::npos);
}

struct GrownConfig {
  std::int64_t first = 1;
  std::int64_t run_only = 2;
  std::string later = "none";

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("first", self.first, "", {.identity = Identity::always});
    visit("run_only", self.run_only, "");
    visit("later", self.later, "", {.identity = Identity::unless_default});
  }
};

TEST(PackIdentity, ASettingThatCameLaterIsThereOnlyWhenItIsUsed) {
  GrownConfig config;
  Json before = Json::object();
  put_fields(config, {}, before);
  config.later = "more";
  Json after = Json::object();
  put_fields(config, {}, after);

  EXPECT_EQ(before.dump(), R"({"first":1})");
  EXPECT_EQ(after.dump(), R"({"first":1,"later":"more"})");
}

}  // namespace
}  // namespace trireme::data_prep
