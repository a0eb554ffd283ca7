#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "data_prep/bench/bench.hpp"
#include "data_prep/tokenizer/count_words.hpp"
#include "support/sorted_words.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::data_prep {
namespace {

using testing::files_below;
using testing::TestDirectory;
using testing::write_text;

class TrainTokenizer : public ::testing::Test {
 protected:
  TrainTokenizer() {
    // Two files with more than two chunks of 4 MiB, so that ranks and threads share the work.
    write_synth(inputs_[0], 42'000, 3, false);
    std::string lines =
        "{\"text\": \"line  \\n  end <think> \\n\"}\n\n{\"text\": \"bad \\ud800\"}\n";
    lines += "{\"text\": \"" + std::string(50'000, 'x') + " 世界 <|im_end|><|im_end|>\"}\n";
    write_text(inputs_[1], lines);
  }

  TrainTokenizerConfig config(const std::string& output) {
    TrainTokenizerConfig config;
    config.inputs = inputs_;
    config.output = (path_ / output).string();
    config.vocab_size = 500;
    config.on_bad_text = "replace";
    config.threads = 1;
    config.progress = "none";
    return config;
  }

  std::string error_of(const std::function<void()>& body, ErrorKind kind) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "no error";
  }

  TestDirectory folder_{"train_tokenizer"};
  std::filesystem::path path_ = folder_.path();
  std::vector<std::string> inputs_{(path_ / "a.jsonl").string(), (path_ / "b.jsonl").string()};
};

TEST_F(TrainTokenizer, FilesAreTheSameForAnyThreadsAndRanks) {
  for (const bool cut : {false, true}) {
    TrainTokenizerConfig alone = config(cut ? "alone-cut" : "alone");
    alone.special_in_text = cut ? "allow" : "text";
    train_tokenizer(alone);
    const auto expected = files_below(alone.output);
    ASSERT_EQ(expected.size(), 2U);
    const text::WordCounter words = count_words(alone, text::minimind_reserved_tokens(), nullptr);
    ASSERT_EQ(words.cut_tokens().size(), cut ? 2U : 0U);
    if (cut) {
      ASSERT_EQ(words.cut_tokens().at("<|im_end|>"), 2U);
    }
    for (const auto& [ranks, threads] : {std::pair(1, 3), {2, 1}, {3, 2}, {5, 1}}) {
      TrainTokenizerConfig shared = config(formatted("r{}t{}{}", ranks, threads, cut ? "cut" : ""));
      shared.special_in_text = alone.special_in_text;
      shared.threads = threads;
      std::swap(shared.inputs[0], shared.inputs[1]);
      comm::run_ranks(ranks, [&](comm::Communicator& world) { train_tokenizer(shared, &world); });

      EXPECT_EQ(files_below(shared.output), expected) << ranks << " ranks, " << threads;
    }
  }
}

TEST_F(TrainTokenizer, RankZeroGetsTheCountsOfAllRanks) {
  TrainTokenizerConfig cutting = config("-");
  cutting.special_in_text = "allow";
  const auto expected = count_words(cutting, text::minimind_reserved_tokens(), nullptr);
  comm::run_ranks(3, [&](comm::Communicator& world) {
    const text::WordCounter words = count_words(cutting, text::minimind_reserved_tokens(), &world);
    if (world.rank() == 0) {
      EXPECT_EQ(sorted_words(words), sorted_words(expected));
      EXPECT_EQ(words.cut_tokens(), expected.cut_tokens());
    } else {
      EXPECT_EQ(words.size(), 0U);
    }
  });
  const auto sorted = sorted_words(expected);
  const auto has = [&](const std::string& word) {
    return std::any_of(sorted.begin(), sorted.end(),
                       [&](const auto& entry) { return entry.first == word; });
  };
  EXPECT_TRUE(has(std::string(50'000, 'x')));
  EXPECT_TRUE(has("  \n "));
}

TEST_F(TrainTokenizer, LinesAreTextsWhenAskedFor) {
  TrainTokenizerConfig lines = config("-");
  lines.unit = "line";
  const auto sorted = sorted_words(count_words(lines, text::minimind_reserved_tokens(), nullptr));
  const auto found = std::find_if(sorted.begin(), sorted.end(),
                                  [](const auto& entry) { return entry.first == "  \n"; });
  EXPECT_NE(found, sorted.end());
}

TEST_F(TrainTokenizer, RefusesBadTextWithItsPlace) {
  TrainTokenizerConfig strict = config("strict");
  strict.on_bad_text = "error";
  const std::string message = error_of([&] { train_tokenizer(strict); }, ErrorKind::data);
  EXPECT_NE(message.find("b.jsonl, byte 38:"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(strict.output));
}

TEST_F(TrainTokenizer, RefusesTooSmallAVocabularyBeforeItCounts) {
  TrainTokenizerConfig small = config("small");
  small.inputs = {(path_ / "absent.jsonl").string()};
  small.vocab_size = 291;  // 36 special tokens and 256 bytes are 292

  const std::string message = error_of([&] { train_tokenizer(small); }, ErrorKind::usage);

  EXPECT_NE(message.find("--vocab-size 291, must be at least 292"), std::string::npos) << message;
}

TEST_F(TrainTokenizer, SaysWhyItFoundFewerTokensThanAskedFor) {
  TrainTokenizerConfig few = config("few");
  few.inputs = {(path_ / "few.jsonl").string()};
  write_text(few.inputs[0], "{\"text\": \"hello hello\"}\n");
  const auto said = [&] {
    std::filesystem::remove_all(few.output);
    ::testing::internal::CaptureStderr();
    train_tokenizer(few);
    log::flush();
    return ::testing::internal::GetCapturedStderr();
  };

  std::string text = said();
  EXPECT_NE(text.find("the tokenizer has 297 of the 500 tokens of --vocab-size: no pair is left to "
                      "merge; give more text or a smaller --vocab-size"),
            std::string::npos)
      << text;
  few.min_frequency = 2;
  few.max_token_length = 4;
  text = said();
  EXPECT_NE(
      text.find("no pair is left to merge that occurs 2 times to less than 4 bytes; give more "
                "text, a smaller --min-frequency, a larger --max-token-length or a smaller "
                "--vocab-size"),
      std::string::npos)
      << text;
  few.vocab_size = 292;
  EXPECT_EQ(said().find("--vocab-size"), std::string::npos);
}

TEST_F(TrainTokenizer, ReadsSpecialTokens) {
  const std::string file = (path_ / "special.json").string();
  write_text(file, R"(["<s>", {"content": "<tool>", "special": false}])");
  const auto tokens = read_special_tokens(file);
  ASSERT_EQ(tokens.size(), 2U);
  EXPECT_EQ(tokens[0].content, "<s>");
  EXPECT_TRUE(tokens[0].special);
  EXPECT_EQ(tokens[1].content, "<tool>");
  EXPECT_FALSE(tokens[1].special);
  EXPECT_EQ(read_special_tokens("minimind").size(), 36U);
  EXPECT_TRUE(read_special_tokens("none").empty());

  for (const char* text : {"{}", "[1]", "[{}]", R"([{"content": "a", "special": 1}])",
                           R"([{"content": "a", "specail": true}])"}) {
    write_text(file, text);
    const std::string message = error_of([&] { read_special_tokens(file); }, ErrorKind::data);
    EXPECT_NE(message.find("special.json"), std::string::npos) << text << ": " << message;
  }
}

TEST_F(TrainTokenizer, BenchCountsWhatItMeasures) {
  TrainTokenizerConfig small = config("tok");
  train_tokenizer(small);
  const std::string input = (path_ / "small.jsonl").string();
  write_text(input, "{\"text\": \"hello\"}\n{\"text\": \"世界 hello\", \"n\": 1}\n");
  BenchConfig bench;
  bench.tokenizer = small.output;
  bench.inputs = {input};
  bench.seconds = 0;
  bench.threads = 2;
  bench.work = path_.string();

  const BenchReport report = run_bench(bench);

  EXPECT_EQ(report.documents, 2U);
  EXPECT_EQ(report.text_bytes, 5U + 12U);
  EXPECT_EQ(report.passes, 1U);
  EXPECT_EQ(report.threads, 2);
  EXPECT_GT(report.tokens, 3U);
  const Json json = parse_json(bench_json(report), "bench");
  for (const char* key : {"encode_mb_per_s", "tokens_per_s", "pack_mb_per_s"})
    EXPECT_GT(json.at(key).get<double>(), 0) << key;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    EXPECT_EQ(entry.path().filename().string().find("trireme-bench"), std::string::npos);
  write_text(input, "{\"txt\": \"hello\"}\n");
  EXPECT_NE(error_of([&] { run_bench(bench); }, ErrorKind::data).find("small.jsonl, byte 0:"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::data_prep
