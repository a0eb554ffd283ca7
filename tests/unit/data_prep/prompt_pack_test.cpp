#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "comm/thread/thread_world.hpp"
#include "data/order/rl_prompts.hpp"
#include "unit/data_prep/small_chats.hpp"

namespace trireme::data_prep {
namespace {

using testing::files_below;
using testing::message;
using testing::pack_with;
using testing::repeated;
using testing::talk;
using testing::write_text;

constexpr const char* kQuestion =
    "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n<think>\n";

class PromptPack : public testing::ChatPack {
 protected:
  SortedJson prompt_of(const SortedJson& record) {
    const auto longer = [](PackConfig& config) { config.seq_len = 1024; };
    EXPECT_EQ(pack_lines("rl", {record.dump()}, longer)["documents"], 1) << record;
    return line(0);
  }

  std::string error_of(const std::string& record,
                       const std::function<void(PackConfig&)>& change = {}) {
    try {
      pack_lines("rl", {record}, change);
    } catch (const Error& error) {
      return error.what();
    }
    return set_->manifest().bad.empty() ? "no error" : set_->manifest().bad.front();
  }
};

TEST_F(PromptPack, APromptIsTheMessagesBeforeTheLastAnswerWithTheHeaderOfTheAnswer) {
  const SortedJson closed = prompt_of({{"conversations", talk({"Why?", "dummy"})}});
  EXPECT_EQ(closed["text"], std::string(kQuestion) + "\n</think>\n\n");
  EXPECT_EQ(closed["target"], std::vector<int>(closed["ids"].size(), 0));
  EXPECT_EQ(prompt_of({{"messages", talk({"Why?"})}})["ids"], closed["ids"]);
  EXPECT_EQ(prompt_of({{"prompt", "Why?"}})["ids"], closed["ids"]);
  EXPECT_EQ(prompt_of({{"prompt", talk({"Why?"})}})["ids"], closed["ids"]);
  const SortedJson shared = {{{"from", "human"}, {"value", "Why?"}},
                             {{"from", "gpt"}, {"value", "dummy"}}};
  EXPECT_EQ(prompt_of({{"conversations", shared}})["ids"], closed["ids"]);
  const SortedJson later = prompt_of({{"messages", talk({"Why?", "So.", "And?", "dummy"})}});
  EXPECT_NE(later["text"].get<std::string>().find("So.<|im_end|>"), std::string::npos);
  EXPECT_EQ(later["text"].get<std::string>().find("dummy"), std::string::npos);
}

TEST_F(PromptPack, TheRecordKeepsMessagesToolsAndAllOtherFields) {
  const SortedJson tool = {{"type", "function"}, {"function", {{"name", "add"}}}};
  SortedJson system = message("system", "S");
  system["tools"] = SortedJson::array({tool}).dump();
  const SortedJson record = {
      {"conversations", {system, message("user", "Why?"), message("assistant", "")}},
      {"gt", {"3", "4"}},
      {"meta", {{"level", 1.5}, {"none", nullptr}}}};
  const SortedJson found = prompt_of(record)["record"];

  EXPECT_EQ(found["messages"],
            SortedJson::array({message("system", "S"), message("user", "Why?")}));
  EXPECT_EQ(found["tools"], SortedJson::array({tool}));
  EXPECT_EQ(found["gt"], record["gt"]);
  EXPECT_EQ(found["meta"], record["meta"]);
  EXPECT_EQ(found.size(), 4U);
  EXPECT_TRUE(set_->manifest().ignored_fields.empty());
  EXPECT_EQ(set_->manifest().record_format, "rl");
}

TEST_F(PromptPack, ThinkingIsAFunctionOfSeedAndRecord) {
  std::vector<std::string> lines;
  for (int i = 0; i < 200; ++i)
    lines.push_back(SortedJson{{"prompt", "Question " + std::to_string(i)}}.dump());
  const auto opened = [&](double ratio, std::int64_t seed) {
    pack_lines("rl", lines, [&](PackConfig& config) {
      config.documents.chat.thinking_ratio = ratio;
      config.documents.chat.seed = seed;
    });
    std::vector<bool> result;
    for (int i = 0; i < 200; ++i)
      result.push_back(line(static_cast<std::uint64_t>(i))["text"].get<std::string>().ends_with(
          "assistant\n<think>\n"));
    return result;
  };
  const auto count = [](const std::vector<bool>& all) {
    return std::count(all.begin(), all.end(), true);
  };

  const std::vector<bool> half = opened(0.5, 1);
  EXPECT_EQ(half, opened(0.5, 1));
  EXPECT_NE(half, opened(0.5, 2));
  EXPECT_NEAR(static_cast<double>(count(half)), 100, 30);  // 4 standard deviations: 28
  EXPECT_EQ(count(opened(0, 1)), 0);
  EXPECT_EQ(count(opened(1, 1)), 200);
}

TEST_F(PromptPack, EveryNumberOfRanksWritesTheSameBytes) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += SortedJson{{"prompt", "Question " + std::to_string(i)}, {"gt", {i}}}.dump() + "\n";
  write_text(path_ / "many.jsonl", text);
  std::vector<std::map<std::string, std::string>> found;
  for (const int ranks : {1, 2, 3}) {
    PackConfig config = testing::pack_config((path_ / "many.jsonl").string(),
                                             path_ / ("ranks" + std::to_string(ranks)));
    config.documents.kind = "rl";
    config.documents.chat.format = "minimind-v3";
    config.documents.chat.thinking_ratio = 0.5;
    config.unit_bytes = 4000;
    comm::run_ranks(ranks,
                    [&](comm::Communicator& world) { pack_with(config, tokenizer_, &world); });
    found.push_back(files_below(config.output));
  }
  EXPECT_GT(found[0].size(), 4U);
  EXPECT_EQ(found[1], found[0]);
  EXPECT_EQ(found[2], found[0]);
}

TEST_F(PromptPack, ReadsEveryPromptOnceInEachEpochInAnOrderOfTheSeed) {
  std::vector<std::string> lines;
  for (int i = 0; i < 120; ++i)
    lines.push_back(SortedJson{{"prompt", "Question"}, {"gt", {i}}}.dump());
  pack_lines("rl", lines, [](PackConfig& config) { config.unit_bytes = 1000; });
  ASSERT_GT(set_->num_shards(), 2U);
  const data::RlPrompts prompts(*set_, 7, /*shuffle=*/true);
  ASSERT_EQ(prompts.size(), 120U);

  std::vector<std::vector<int>> epochs(2);
  for (std::uint64_t index = 0; index < 240; ++index) {
    const data::RlPrompts::Prompt prompt = prompts.at(index);
    const int number = SortedJson::parse(prompt.record)["gt"][0];
    EXPECT_EQ(prompt.document, static_cast<std::uint64_t>(number));
    EXPECT_EQ(prompt.ids, line(prompt.document)["ids"].get<std::vector<std::uint32_t>>());
    epochs[index / 120].push_back(number);
  }

  std::vector<int> all(120);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_NE(epochs[0], all);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[0][0], SortedJson::parse(data::RlPrompts(*set_, 8, true).at(0).record)["gt"][0]);
  EXPECT_EQ(SortedJson::parse(data::RlPrompts(*set_, 7, false).at(5).record)["gt"][0], 5);
  for (std::vector<int>& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, all);
  }
}

TEST_F(PromptPack, FindsThePromptsOfARangeThatAreLongerThanALimit) {
  std::vector<std::string> lines;
  for (int i = 0; i < 120; ++i)
    lines.push_back(SortedJson{{"prompt", repeated("a tree ", 1 + i * 7 % 40)}}.dump());
  pack_lines("rl", lines, [](PackConfig& config) { config.unit_bytes = 1000; });
  ASSERT_GT(set_->num_shards(), 2U);
  const data::RlPrompts prompts(*set_, 0, /*shuffle=*/false);
  const std::uint64_t size = prompts.size();
  const auto length = [&](std::uint64_t document) { return prompts.at(document).ids.size(); };

  for (const data::DocumentRange range :
       {data::DocumentRange{0, size}, {size / 3, size - 2}, {5, 6}, {5, 5}}) {
    for (const std::int64_t limit : {0, 30, 45, 1000}) {
      data::LongPrompts expected;
      for (std::uint64_t i = range.begin; i < range.end; ++i) {
        if (length(i) <= static_cast<std::uint64_t>(limit)) continue;
        ++expected.count;
        if (length(i) > expected.longest_tokens) expected.longest = i;
        expected.longest_tokens = std::max<std::uint64_t>(expected.longest_tokens, length(i));
      }
      const data::LongPrompts found = data::long_prompts(*set_, range, limit);
      EXPECT_EQ(found.count, expected.count) << range.begin << " " << limit;
      EXPECT_EQ(found.longest, expected.longest) << range.begin << " " << limit;
      EXPECT_EQ(found.longest_tokens, expected.longest_tokens) << range.begin << " " << limit;
    }
  }
  EXPECT_EQ(data::long_prompts(*set_, {0, size}, 0).count, size);
  const std::uint64_t some = data::long_prompts(*set_, {0, size}, 45).count;
  EXPECT_TRUE(some > 0 && some < size) << some;
}

TEST_F(PromptPack, LongPromptsAreDroppedAndInvalidRecordsAreNamed) {
  const SortedJson counts = pack_lines(
      "rl",
      {SortedJson{{"prompt", repeated("the tree ", 100)}}.dump(),
       SortedJson{{"prompt", "Why?"}}.dump(), R"({"prompt": "Why?", "gt": NaN})",
       SortedJson{{"messages", SortedJson::array({message("assistant", "x")})}}.dump(),
       SortedJson{{"prompt", "a"}, {"messages", talk({"a"})}}.dump(), R"({"question": "Why?"})"});

  EXPECT_EQ(counts["documents"], 1);
  EXPECT_EQ(counts["dropped_long"], 1);
  EXPECT_EQ(counts["bad_lines"], 4);
  const std::vector<std::string>& bad = set_->manifest().bad;
  EXPECT_NE(bad[0].find("last read: '\"gt\": N'; JSON has no NaN"), std::string::npos) << bad[0];
  EXPECT_EQ(bad[0].find("json.exception"), std::string::npos) << bad[0];
  EXPECT_NE(bad[1].find("has no message before its last answer"), std::string::npos) << bad[1];
  EXPECT_NE(bad[2].find("'messages' and 'prompt' are both present"), std::string::npos) << bad[2];
  EXPECT_NE(bad[3].find("no field 'conversations' (nor 'messages', nor 'prompt')"),
            std::string::npos)
      << bad[3];
}

TEST_F(PromptPack, ATextPromptIsRecognizedWhateverItsOtherFieldsAre) {
  ::testing::internal::CaptureStderr();
  for (const char* field : {"answer", "response", "output", "text", "label", "completion"})
    pack_lines("rl", {SortedJson{{"prompt", "Why?"}, {field, "42"}}.dump()});
  pack_lines("rl", {R"({"question": "Why?"})", R"({"prompt": "Why?", "answer": "42"})"});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("no known record form"), std::string::npos) << log;
  // A record of another kind is still not called a prompt because of one field.
  EXPECT_EQ(error_of(R"({"prompt": "Why?", "answer": "42"})",
                     [](PackConfig& config) { config.documents.kind = "sft"; })
                .find("--kind rl packs"),
            std::string::npos);
}

TEST_F(PromptPack, RefusesOptionsThatDoNotApply) {
  const auto error = [&](const std::function<void(PackConfig&)>& change) {
    return error_of(R"({"prompt": "Why?"})", change);
  };
  EXPECT_NE(error([](PackConfig& c) {
              c.documents.chat.mask = "minimind";
            }).find("--mask does not apply to --kind rl"),
            std::string::npos);
  EXPECT_NE(error([](PackConfig& c) {
              c.documents.chat.thinking_ratio = 1.5;
            }).find("--thinking-ratio 1.5, must be in [0, 1]"),
            std::string::npos);
  EXPECT_NE(error([](PackConfig& c) {
              c.documents.chat.thinking_ratio = 0.5;
              c.documents.chat.format = "llama3";
            }).find("--template llama3 has no thoughts"),
            std::string::npos);
  EXPECT_NE(error([](PackConfig& c) {
              c.documents.kind = "sft";
              c.documents.chat.thinking_ratio = 0.5;
            }).find("--thinking-ratio 0.5 requires --kind rl"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::data_prep
