/// `import --add-tokens` and `--resize-vocab`.

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "core/error.hpp"
#include "unit/checkpoint/hf_models.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

constexpr std::size_t kWidth = 32;
constexpr std::size_t kKnown = 3;  // the tokenizer of save_model has ids up to 2

class Vocabulary : public ::testing::Test {
 protected:
  Vocabulary() {
    save_model(folder_ / "run/checkpoints", small(true, false), 1);
    export_command_alone({.checkpoint = folder_ / "run", .output = folder_ / "hf"});
  }

  Checkpoint imported(const VocabChange& change, const std::string& output) {
    import_command({.hf = folder_ / "hf", .output = folder_ / output, .vocab = change});
    return verify_checkpoint(folder_ / (output + "/checkpoints/step-000000000"));
  }

  std::string error_of(const VocabChange& change, ErrorKind kind) {
    try {
      imported(change, "refused");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "no error";
  }

  std::string tokens(const std::string& text) {
    std::ofstream(folder_ / "tokens.txt", std::ios::binary) << text;
    return folder_ / "tokens.txt";
  }

  static std::vector<float> rows(const Checkpoint& checkpoint, const std::string& name) {
    const std::vector<std::byte> bytes = checkpoint.read_logical("param/" + name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  TempDirectory folder_;
};

TEST_F(Vocabulary, NewRowsAreTheMeanOfTheRowsWithAToken) {
  const Checkpoint before = imported({}, "before");

  const Checkpoint after = imported({.num_rows = 61}, "after");

  for (const std::string name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const std::vector<float> old = rows(before, name);
    const std::vector<float> now = rows(after, name);
    ASSERT_EQ(now.size(), 61 * kWidth);
    for (std::size_t i = 0; i < now.size(); ++i) {
      const std::size_t column = i % kWidth;
      const double mean =
          (double{old[column]} + old[kWidth + column] + old[2 * kWidth + column]) / 3;
      ASSERT_EQ(now[i], i < kKnown * kWidth ? old[i] : static_cast<float>(mean)) << name << i;
    }
  }
  EXPECT_EQ(model_from_values(after.manifest().values, "test").vocab_size, 61);
  EXPECT_EQ(rows(after, "model.norm.weight"), rows(before, "model.norm.weight"));
  EXPECT_EQ(rows(imported({.num_rows = 3}, "less"), "lm_head.weight").size(), 3 * kWidth);
}

TEST_F(Vocabulary, AddedTokensGetTheNextIdsAndUseFreeRowsFirst) {
  const Checkpoint few = imported({.add_tokens = tokens("<|a|>\r\n two words\n")}, "few");
  EXPECT_EQ(rows(few, "lm_head.weight").size(), 50 * kWidth);
  const Json added = parse_json(few.file("tokenizer.json"), "test").at("added_tokens");
  ASSERT_EQ(added.size(), 4U);
  EXPECT_EQ(added[2].at("content"), "<|a|>");
  EXPECT_EQ(added[2].at("id"), 3);
  EXPECT_EQ(added[2].at("special"), false);
  EXPECT_EQ(added[3].at("content"), " two words");
  EXPECT_EQ(added[3].at("id"), 4);

  std::string many;
  for (int i = 0; i < 60; ++i) many += formatted("token {}\n", i);
  EXPECT_EQ(rows(imported({.add_tokens = tokens(many)}, "many"), "lm_head.weight").size(),
            63 * kWidth);
}

TEST_F(Vocabulary, RefusesTokensAndSizesThatDoNotFit) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error_of({.num_rows = -1}, ErrorKind::usage),
      "--resize-vocab -1, must be 0 (as many rows as needed) or more");
  has(error_of({.num_rows = 2}, ErrorKind::usage),
      "--resize-vocab 2 is too small. It must be at least 3");
  has(error_of({.add_tokens = tokens("a\nb\n"), .num_rows = 4}, ErrorKind::usage),
      "It must be at least 5");
  has(error_of({.add_tokens = tokens("a\n\nb\n")}, ErrorKind::data), "line 2: the token is empty");
  has(error_of({.add_tokens = tokens("a\na\n")}, ErrorKind::data),
      "line 2: the token 'a' is given twice");
  has(error_of({.add_tokens = tokens("<|im_end|>\n")}, ErrorKind::data),
      "the tokenizer already has the token '<|im_end|>'");
  overwrite(
      folder_ / "hf/tokenizer.json",
      R"({"version": "1.0", "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["piece", -1]]}})");
  has(error_of({.add_tokens = tokens("piece\n")}, ErrorKind::data),
      "the tokenizer already has the token 'piece'");
  has(error_of({.add_tokens = tokens("\xff\n")}, ErrorKind::data),
      "line 1: the token is not valid");
  has(error_of({.add_tokens = tokens("")}, ErrorKind::data), "has no token");
  EXPECT_FALSE(fs::exists(folder_ / "refused/checkpoints/step-000000000"));
}

}  // namespace
}  // namespace trireme::checkpoint
