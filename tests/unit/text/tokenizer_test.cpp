#include "text/tokenizer.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/split/gpt2_split.hpp"
#include "text/unicode/byte_level.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

using Ids = std::vector<std::uint32_t>;

/// Returns the small tokenizer with one part of its file replaced.
Tokenizer changed(const std::function<void(Json&)>& change) {
  Json json = parse_json(samples::small_files().at("tokenizer.json"), "test");
  change(json);
  return Tokenizer::from_files({{"tokenizer.json", json.dump()}}, "test");
}

/// Encodes by definition: finds the best pair of all, merges it, and starts again.
class PlainBpe {
 public:
  explicit PlainBpe(const std::string& file) {
    const Json model = parse_json(file, "test")["model"];
    for (const auto& merge : model["merges"]) {
      const int rank = static_cast<int>(ranks_.size());
      ranks_[{merge[0].get<std::string>(), merge[1].get<std::string>()}] = rank;
    }
    for (const auto& [token, id] : model["vocab"].items()) ids_[token] = id.get<std::uint32_t>();
  }

  Ids encode(std::string_view text) const {
    Ids ids;
    split_by<Gpt2Pattern>(text, [&](std::string_view piece) {
      std::vector<std::string> symbols;
      for (const char c : piece) symbols.push_back(to_byte_level(std::string(1, c)));
      while (merge_best(symbols)) {
      }
      for (const std::string& symbol : symbols) ids.push_back(ids_.at(symbol));
    });
    return ids;
  }

 private:
  bool merge_best(std::vector<std::string>& symbols) const {
    int best = -1;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks_.find({symbols[i], symbols[i + 1]});
      if (found != ranks_.end() && (best < 0 || found->second < best)) {
        best = found->second;
        where = i;
      }
    }
    if (best < 0) return false;
    symbols[where] += symbols[where + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    return true;
  }

  std::map<std::pair<std::string, std::string>, int> ranks_;
  std::map<std::string, std::uint32_t> ids_;
};

TEST(Tokenizer, GivesBackEveryText) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  samples::Rng rng(11);
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode(Ids{}), "");
  for (int i = 0; i < 3000; ++i) {
    const std::string text = samples::random_text(rng, 30);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, {.match_added_tokens = false})), text);
  }
}

TEST(Tokenizer, EqualsBpeByDefinition) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  const PlainBpe plain(samples::small_files().at("tokenizer.json"));
  samples::Rng rng(12);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = samples::random_text(rng, 30);
    ASSERT_EQ(tokenizer.encode(text, {.match_added_tokens = false}), plain.encode(text)) << text;
  }
}

TEST(Tokenizer, EqualsBpeByDefinitionOnWordsOfEveryLength) {
  // With few letters and many merges, most merges change what their neighbours may do next.
  samples::Rng rng(13);
  const auto random_piece = [&rng](std::size_t size) {
    std::string piece(size, 'a');
    for (char& c : piece) c = "abcd"[rng() % 4];
    return piece;
  };
  WordCounter counter;
  for (int i = 0; i < 300; ++i) counter.add(random_piece(1 + rng() % 60));
  const auto files = train_bpe(counter, {.vocab_size = 900});
  const Tokenizer tokenizer = Tokenizer::from_files(files, "test");
  const PlainBpe plain(files.at("tokenizer.json"));

  for (std::size_t size = 1; size < 300; ++size) {
    const std::string piece = random_piece(size);
    const Ids expected = plain.encode(piece);
    ASSERT_EQ(tokenizer.encode(piece), expected) << piece;
    ASSERT_EQ(tokenizer.encode(piece), expected) << "from the cache: " << piece;
  }
}

TEST(Tokenizer, TakesHugeWordsInReasonableTime) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  for (const std::string unit : {"a", "ab", "世", " ", "\n", "!", "1", "'"}) {
    std::string text;
    while (text.size() < 300000) text += unit;  // one word; quadratic time would take minutes
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  const std::string long_run(3000, 'a');
  EXPECT_EQ(tokenizer.encode(long_run),
            PlainBpe(samples::small_files().at("tokenizer.json")).encode(long_run));
}

TEST(Tokenizer, MatchesAddedTokensOnlyIfAsked) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  const std::string text = "<|im_start|>user\nhi<|im_end|>\n<think>";

  const Ids with = tokenizer.encode(text);
  const Ids without = tokenizer.encode(text, {.match_added_tokens = false});

  EXPECT_EQ(with.front(), 1U);
  EXPECT_EQ(with.back(), 25U);
  EXPECT_EQ(std::count(with.begin(), with.end(), 2U), 1);
  EXPECT_TRUE(
      std::all_of(without.begin(), without.end(), [](std::uint32_t id) { return id >= 36; }));
  EXPECT_EQ(tokenizer.decode(with), text);
  EXPECT_EQ(tokenizer.decode(with, true), "user\nhi\n<think>");  // ids 21 to 35 are not special
}

/// Expected: Hugging Face tokenizers 0.23.3.
TEST(Tokenizer, SkipsSpecialTokensByTheirDecodedText) {
  std::map<std::string, std::string> files = samples::small_files();
  Json json = parse_json(files.at("tokenizer.json"), "test");
  json["normalizer"] = {{"type", "NFC"}};
  const auto add = [&](const char* content, int id) {
    json["added_tokens"].push_back(
        {{"id", id}, {"content", content}, {"normalized", true}, {"special", true}});
  };
  add("\u0344", 700);  // NFC: U+0308 U+0301
  add("<x>", 701);
  files["tokenizer.json"] = json.dump();
  const Tokenizer tokenizer = Tokenizer::from_files(files, "test");

  EXPECT_EQ(tokenizer.decode(Ids{700, 701}, true), "\u0308\u0301");
  EXPECT_EQ(tokenizer.decode(Ids{700, 701}, false), "\u0308\u0301<x>");
}

TEST(Tokenizer, PutsTheTemplateAroundOnRequest) {
  const Tokenizer tokenizer = changed([](Json& json) {
    json["post_processor"] = Json::parse(
        R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 3], "tokens": ["a", "b"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["c"]}}}]})");
  });
  const Ids plain = samples::small_tokenizer().encode("hello");
  Ids expected = {1, 3};
  expected.insert(expected.end(), plain.begin(), plain.end());
  expected.push_back(2);

  EXPECT_EQ(tokenizer.encode("hello"), expected);
  EXPECT_EQ(tokenizer.encode("hello", {.add_special_tokens = false}), plain);
  EXPECT_EQ(tokenizer.encode(""), (Ids{1, 3, 2}));
}

TEST(Tokenizer, AddsAPrefixSpaceToEveryPartThatHasNone) {
  const Tokenizer tokenizer =
      changed([](Json& json) { json["pre_tokenizer"]["add_prefix_space"] = true; });

  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a<think>b<think> c")), " a<think> b<think> c");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("\n")), " \n");
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

TEST(Tokenizer, IgnoreMergesTakesWholeTokens) {
  // "zq" is a token that no merge makes.
  const auto add_token = [](Json& json) { json["model"]["vocab"]["zq"] = 700; };
  const Tokenizer merging = changed(add_token);
  const Tokenizer ignoring = changed([&](Json& json) {
    add_token(json);
    json["model"]["ignore_merges"] = true;
  });

  EXPECT_EQ(merging.encode("zq").size(), 2U);
  EXPECT_EQ(ignoring.encode("zq"), Ids{700});
  EXPECT_EQ(ignoring.encode("zqz").size(), 3U);
  EXPECT_EQ(ignoring.vocab_size(), 701U);
}

TEST(Tokenizer, LegacyMergesGiveTheSameIdsAndHash) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  const Tokenizer legacy = changed([](Json& json) {
    Json lines = Json::array({"#version: 0.2"});
    for (const auto& merge : json["model"]["merges"])
      lines.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    json["model"]["merges"] = lines;
  });

  EXPECT_EQ(legacy.encode("the other return of the world"),
            tokenizer.encode("the other return of the world"));
  EXPECT_EQ(legacy.content_hash(), tokenizer.content_hash());
}

TEST(Tokenizer, HashSeesEveryPartThatDecidesIds) {
  const std::vector<std::function<void(Json&)>> changes = {
      [](Json&) {},
      [](Json& json) { json["model"]["vocab"]["zzz"] = 700; },
      [](Json& json) { std::swap(json["model"]["merges"][0], json["model"]["merges"][1]); },
      [](Json& json) { json["added_tokens"][30]["special"] = true; },
      [](Json& json) { json["added_tokens"][30]["lstrip"] = true; },
      [](Json& json) { json["pre_tokenizer"]["use_regex"] = false; },
      [](Json& json) { json["model"]["ignore_merges"] = true; }};
  std::set<std::string> hashes;
  for (const auto& change : changes) hashes.insert(changed(change).content_hash());

  EXPECT_EQ(hashes.size(), changes.size());
  EXPECT_EQ(hashes.count(samples::small_tokenizer().content_hash()),
            1U);  // no change, but another layout of the file
}

TEST(Tokenizer, KnowsRolesSizesAndTokens) {
  const Tokenizer tokenizer = samples::small_tokenizer();

  EXPECT_EQ(tokenizer.vocab_size(), 700U);
  EXPECT_EQ(tokenizer.bos_id(), 1U);
  EXPECT_EQ(tokenizer.eos_id(), 2U);
  EXPECT_EQ(tokenizer.pad_id(), 0U);
  EXPECT_EQ(tokenizer.token_bytes(26), "</think>");
  EXPECT_EQ(tokenizer.token_bytes(36), "!");
  EXPECT_EQ(tokenizer.token_bytes(tokenizer.encode(" ").front()), " ");
  EXPECT_EQ(tokenizer.token_bytes(12345), "");
  EXPECT_TRUE(tokenizer.is_special(20));
  EXPECT_FALSE(tokenizer.is_special(21));
  EXPECT_EQ(tokenizer.decode(Ids{36, 12345, 36}), "!!");
  EXPECT_EQ(tokenizer.files(), samples::small_files());
  EXPECT_EQ(changed([](Json&) {}).eos_id(), std::nullopt);
}

TEST(Tokenizer, RefusesInvalidUtf8) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  for (const char* text : {"\xFF", "abc\xC3", "\xED\xA0\x80", "\xF5\x80\x80\x80"}) {
    EXPECT_THROW(static_cast<void>(tokenizer.encode(text)), Error) << text;
  }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(std::string("\0\x01", 2))), std::string("\0\x01", 2));
}

TEST(Tokenizer, LoadsADirectoryOrAFile) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "tokenizer_test";
  std::filesystem::create_directories(folder);
  for (const auto& [name, content] : samples::small_files())
    std::ofstream(folder / name, std::ios::binary) << content;

  const Tokenizer from_folder = Tokenizer::load(folder);
  const Tokenizer from_file = Tokenizer::load(folder / "tokenizer.json");

  EXPECT_EQ(from_folder.files(), samples::small_files());
  EXPECT_EQ(from_folder.eos_id(), 2U);
  EXPECT_EQ(from_file.eos_id(), std::nullopt);
  EXPECT_EQ(from_file.content_hash(), from_folder.content_hash());
  EXPECT_THROW(Tokenizer::load(folder / "absent"), Error);
  std::filesystem::remove_all(folder);
}

TEST(Tokenizer, WithOnlyIdsKnowsThemAndSaysWhyItTakesNoText) {
  const Tokenizer ids = Tokenizer::ids_only({{"tokenizer.json", "{}"}}, 1000, "Unigram");
  EXPECT_EQ(ids.vocab_size(), 1000U);
  EXPECT_EQ(ids.decode(Ids{0, 65, 255, 999}), "");
  EXPECT_EQ(ids.content_hash(), "");
  EXPECT_FALSE(ids.is_special(3));
  EXPECT_EQ(ids.files().size(), 1U);
  StreamDecoder decoder(ids);
  EXPECT_EQ(decoder.push(97) + decoder.finish(), "");
  try {
    (void)ids.encode("a");
    FAIL() << "encoded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_STREQ(error.what(), "Unigram");
  }
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  samples::Rng rng(21);
  std::vector<std::string> texts(200);
  std::vector<Ids> expected;
  for (std::string& text : texts)
    expected.push_back(tokenizer.encode(text = samples::random_text(rng, 20)));

  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&, copy = tokenizer] {
      for (std::size_t i = 0; i < texts.size(); ++i)
        count += copy.encode(texts[i]) != expected[i] || copy.decode(expected[i]) != texts[i];
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace trireme::text
