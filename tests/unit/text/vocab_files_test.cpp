#include "text/spec/vocab_files.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/spec/tokenizer_spec.hpp"
#include "text/tokenizer.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

using Files = std::map<std::string, std::string>;

/// Returns the vocabulary and merges of a small byte-level tokenizer as separate files.
Files small_vocab_files() {
  const Json json = parse_json(samples::small_files().at("tokenizer.json"), "test");
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : json["model"]["merges"])
    merges += merge.is_string()
                  ? merge.get<std::string>() + "\n"
                  : merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  return {{"vocab.json", json["model"]["vocab"].dump()}, {"merges.txt", merges}};
}

TEST(VocabFiles, BecomeTheTokenizerOfGpt2) {
  Files files = small_vocab_files();
  add_tokenizer_json(files, "T");

  const Tokenizer tokenizer = Tokenizer::from_files(files, "T");
  const std::string text = " the return of abc 42\n";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(VocabFiles, AddedTokensComeFromAllFiles) {
  Files files = small_vocab_files();
  const auto size = static_cast<std::uint32_t>(parse_json(files["vocab.json"], "v").size());
  files["added_tokens.json"] = formatted(R"({{"<|new|>": {}}})", size);
  files["tokenizer_config.json"] =
      Json{{"tokenizer_class", "Qwen2Tokenizer"},
           {"eos_token", "<|end|>"},
           {"added_tokens_decoder",
            {{std::to_string(size + 1), {{"content", "<|end|>"}, {"special", true}}}}}}
          .dump();
  add_tokenizer_json(files, "T");

  const Tokenizer tokenizer = Tokenizer::from_files(files, "T");
  EXPECT_EQ(tokenizer.encode("<|new|><|end|>"), (std::vector<std::uint32_t>{size, size + 1}));
  EXPECT_EQ(tokenizer.eos_id(), size + 1);
  EXPECT_TRUE(tokenizer.is_special(size + 1));
  EXPECT_FALSE(tokenizer.is_special(size));
}

TEST(VocabFiles, OtherClassesAreRefusedByName) {
  Files files = small_vocab_files();
  files["tokenizer_config.json"] = R"({"tokenizer_class": "RobertaTokenizer"})";
  try {
    add_tokenizer_json(files, "T");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("tokenizer_class RobertaTokenizer"),
              std::string::npos);
  }
}

TEST(VocabFiles, DoNotReplaceATokenizerJson) {
  Files files = small_vocab_files();
  files["tokenizer.json"] = "{}";
  add_tokenizer_json(files, "T");
  EXPECT_EQ(files.at("tokenizer.json"), "{}");

  Files alone = {{"vocab.json", "{}"}};
  add_tokenizer_json(alone, "T");
  EXPECT_EQ(alone.size(), 1U);
}

}  // namespace
}  // namespace trireme::text
