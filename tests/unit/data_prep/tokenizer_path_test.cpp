#include "data_prep/tokenizer_path.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::data_prep {
namespace {

namespace fs = std::filesystem;

TEST(TokenizerPlace, IsAFileADirectoryACheckpointOrARun) {
  const testing::TestDirectory folder("tokenizer_place");
  testing::write_text(folder.path() / "a.jsonl", "{\"text\": \"one two three\"}\n");
  const fs::path trained =
      testing::tokenizer_of(folder.path(), (folder.path() / "a.jsonl").string());
  const std::string hash = text::Tokenizer::load(trained).content_hash();
  const fs::path steps = folder.path() / "run/checkpoints";
  for (const char* step : {"step-000000009", "step-000000010", ".tmp-step-000000012"})
    fs::create_directories(steps / step);
  fs::create_directories(steps / "step-000000011");  // its data set has no tokenizer
  testing::write_text(steps / "step-000000009/tokenizer.json", "{}");
  testing::write_text(steps / ".tmp-step-000000012/tokenizer.json", "{}");
  fs::copy(trained / "tokenizer.json", steps / "step-000000010/tokenizer.json");

  for (const fs::path& place : {trained, trained / "tokenizer.json", steps / "step-000000010",
                                steps, folder.path() / "run"})
    EXPECT_EQ(load_tokenizer(place).content_hash(), hash) << place;
  for (const fs::path& place : {folder.path(), steps / "step-000000011"}) {
    try {
      (void)load_tokenizer(place);
      FAIL() << place;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find("run, Hugging Face model"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace trireme::data_prep
