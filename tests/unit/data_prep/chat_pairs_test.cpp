#include "comm/thread/thread_world.hpp"
#include "data/order/samples.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "unit/core/scratch.hpp"
#include "unit/data_prep/small_chats.hpp"

namespace trireme::data_prep {
namespace {

using testing::files_below;
using testing::pack_with;
using testing::repeated;
using testing::talk;

using ChatPairs = testing::ChatPack;

TEST_F(ChatPairs, StoreTheirPromptOnce) {
  const SortedJson found =
      pack_lines("dpo", {dpo("Where is the cat?", "In the garden.", "Nowhere")});

  const SortedJson pair = line(0);
  const auto& chosen = pair["chosen"];
  const auto& rejected = pair["rejected"];
  const std::size_t prompt = pair["prompt_len"];
  EXPECT_EQ(trained(chosen), "<think>\n\n</think>\n\nIn the garden.<|im_end|>");
  EXPECT_EQ(trained(rejected), "<think>\n\n</think>\n\nNowhere<|im_end|>");
  for (std::size_t i = 0; i < prompt; ++i) EXPECT_EQ(chosen["ids"][i], rejected["ids"][i]);
  EXPECT_NE(chosen["ids"][prompt], rejected["ids"][prompt]);
  EXPECT_EQ(found["tokens"], chosen["ids"].size() + rejected["ids"].size() - prompt);
  EXPECT_EQ(found["target_tokens"],
            std::count(chosen["target"].begin(), chosen["target"].end(), SortedJson(1)) +
                std::count(rejected["target"].begin(), rejected["target"].end(), SortedJson(1)));
  EXPECT_EQ(data::SampleSet(*set_, 64).size(), 1U);
}

std::function<void(PackConfig&)> with_rule(const std::string& rule) {
  return [rule](PackConfig& config) { config.documents.chat.cut_pairs = rule; };
}

TEST_F(ChatPairs, LongOnesLoseTheEndOfTheirSidesAsInMiniMind) {
  const std::string words = repeated("the tree ", 100);
  const SortedJson found =
      pack_lines("dpo", {dpo(words + "Where is the cat?", "In the garden.", "No"),
                         dpo("Why?", words, "No"),  // the answer alone is too long
                         dpo("Why?", "Same", "Same"), dpo("Why?", "Yes", "No")});

  EXPECT_EQ(found["documents"], 2);
  EXPECT_EQ(found["truncated"], 1);
  EXPECT_EQ(found["cut_answers"], 1);
  EXPECT_FALSE(found.contains("cut_prompts"));
  EXPECT_EQ(found["dropped"], 2);
  EXPECT_EQ(found["dropped_long"], 1) << "the prompt fills the length";
  EXPECT_EQ(found["dropped_equal"], 1);
  EXPECT_EQ(found["config"]["cut_pairs"], "end");
  EXPECT_THROW(find_line(*set_, 0), Error);
  const SortedJson answer = line(1);
  EXPECT_TRUE(answer["chosen"]["text"].get<std::string>().starts_with("<|im_start|>user\nWhy?"));
  EXPECT_EQ(answer["chosen"]["ids"].size(), 64U);
  EXPECT_EQ(trained(answer["rejected"]), "<think>\n\n</think>\n\nNo<|im_end|>");
}

TEST_F(ChatPairs, ByTheRulePromptAQuarterOfTheLengthIsKeptForThePrompt) {
  const std::string words = repeated("the tree ", 100);
  const SortedJson found = pack_lines("dpo",
                                      {dpo(words + "Where is the cat?", "In the garden.", "No"),
                                       dpo(words, words, "No"), dpo("Why?", "Yes", "No")},
                                      with_rule("prompt"));

  EXPECT_EQ(found["documents"], 3);
  EXPECT_EQ(found["truncated"], 2);
  EXPECT_EQ(found["cut_prompts"], 2);
  EXPECT_EQ(found["cut_answers"], 1);
  const SortedJson pair = line(0);
  EXPECT_EQ(pair["chosen"]["ids"].size(), 64U);
  EXPECT_LT(pair["rejected"]["ids"].size(), 64U);
  EXPECT_TRUE(pair["chosen"]["text"].get<std::string>().ends_with("In the garden.<|im_end|>\n"));
  EXPECT_EQ(trained(pair["chosen"]), "<think>\n\n</think>\n\nIn the garden.<|im_end|>");
  EXPECT_EQ(trained(pair["rejected"]), "<think>\n\n</think>\n\nNo<|im_end|>");
  EXPECT_EQ(pair["chosen"]["ids"][0], pair["rejected"]["ids"][0]);
  const SortedJson answer = line(1);
  EXPECT_EQ(answer["prompt_len"], 16);
  EXPECT_EQ(answer["chosen"]["ids"].size(), 64U);
}

TEST_F(ChatPairs, ByTheRuleDropLongOnesAreLeftOut) {
  const std::string words = repeated("the tree ", 100);
  const SortedJson found = pack_lines(
      "dpo", {dpo(words, "Yes", "No"), dpo("Why?", words, "No"), dpo("Why?", "Yes", "No")},
      with_rule("drop"));

  EXPECT_EQ(found["documents"], 1);
  EXPECT_EQ(found["truncated"], 0);
  EXPECT_EQ(found["dropped_long"], 2);
  try {
    pack_lines("sft", {sft(talk({"q", "a"}))}, with_rule("drop"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--cut-pairs drop requires --kind dpo"),
              std::string::npos);
  }
}

TEST_F(ChatPairs, ADirectoryOfAnotherRuleIsRefused) {
  pack_lines("dpo", {dpo("Why?", "Yes", "No")});
  PackConfig config = testing::pack_config((path_ / "in.jsonl").string(), path_ / "set");
  config.documents.kind = "dpo";
  config.documents.chat.format = "minimind-v3";
  config.documents.chat.cut_pairs = "prompt";
  try {
    pack_with(config, tokenizer_, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what())
                  .find("--cut-pairs is \"end\" in the data set, \"prompt\" in this command"),
              std::string::npos)
        << error.what();
  }
}

/// Returns the part of a stored side that remains at another length, computed independently.
SortedJson cut_side(const SortedJson& side, std::size_t cut, std::size_t seq_len) {
  SortedJson kept = {{"ids", SortedJson::array()}, {"target", SortedJson::array()}};
  for (std::size_t i = cut; i < std::min(side["ids"].size(), cut + seq_len); ++i) {
    kept["ids"].push_back(side["ids"][i]);
    kept["target"].push_back(i == cut ? SortedJson(0) : side["target"][i]);
  }
  return kept;
}

/// Returns true if the side has a target, which must follow the prompt if the side lost its end.
bool keeps_answer(const SortedJson& side, const SortedJson& whole, std::size_t prompt,
                  std::size_t cut) {
  const auto& target = side["target"];
  const bool lost_end = cut + side["ids"].size() < whole["ids"].size();
  const std::size_t from = lost_end ? std::min(prompt, target.size()) : 0;
  return std::count(target.begin() + static_cast<std::ptrdiff_t>(from), target.end(),
                    SortedJson(1)) != 0;
}

TEST_F(ChatPairs, CutOnesAreThePartOfTheWholeThatTheRuleNames) {
  const auto turns = [](int prompt, const std::string& last) {
    SortedJson messages =
        talk({"first", repeated("the cat ", prompt), repeated("a dog ", prompt), last});
    messages.insert(messages.begin(), testing::message("system", repeated("be good ", prompt)));
    return messages;
  };
  std::vector<std::string> lines;
  for (const int prompt : {0, 3, 20}) {
    for (const auto& [good, bad] : {std::pair(0, 1), {1, 9}, {40, 2}, {30, 31}}) {
      lines.push_back(SortedJson{{"chosen", turns(prompt, repeated("red ", good))},
                                 {"rejected", turns(prompt, repeated("red ", bad) + "!")}}
                          .dump());
    }
  }
  lines.push_back(R"({"prompt": "q", "chosen": "same", "rejected": "same"})");
  const std::vector<std::pair<const char*, std::string>> cases{
      {"answer", "end"}, {"minimind", "end"}, {"answer", "prompt"}, {"minimind", "drop"}};
  for (const auto& [mask, rule] : cases) {
    std::vector<SortedJson> whole;
    pack_lines("dpo", lines, [&](PackConfig& config) {
      config.seq_len = 4096;
      config.documents.chat.mask = mask;
      config.documents.chat.cut_pairs = rule;
    });
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) whole.push_back(line(i));
    int kept_lengths = 0;
    for (const std::size_t seq_len : {16U, 47U, 64U, 150U, 400U}) {
      const auto at_length = [&](PackConfig& config) {
        config.seq_len = static_cast<std::int64_t>(seq_len);
        config.documents.chat.mask = mask;
        config.documents.chat.cut_pairs = rule;
      };
      std::vector<std::optional<SortedJson>> expected;
      std::size_t kept = 0;
      for (const SortedJson& pair : whole) {
        const std::size_t longer =
            std::max(pair["chosen"]["ids"].size(), pair["rejected"]["ids"].size());
        const std::size_t prompt = pair["prompt_len"];
        const std::size_t stays = std::min(prompt, (seq_len + 3) / 4);
        const std::size_t cut =
            rule == "prompt" ? std::min(longer - std::min(longer, seq_len), prompt - stays) : 0;
        const SortedJson chosen = cut_side(pair["chosen"], cut, seq_len);
        const SortedJson rejected = cut_side(pair["rejected"], cut, seq_len);
        const bool keeps = keeps_answer(chosen, pair["chosen"], prompt - cut, cut) &&
                           keeps_answer(rejected, pair["rejected"], prompt - cut, cut) &&
                           !(rule == "drop" && longer > seq_len);
        kept += keeps ? 1 : 0;
        expected.push_back(keeps ? std::optional(SortedJson{chosen, rejected, prompt - cut})
                                 : std::nullopt);
      }
      if (kept == 0) continue;
      kept_lengths += 1;
      const SortedJson found = pack_lines("dpo", lines, at_length);

      EXPECT_EQ(found["documents"], kept);
      EXPECT_EQ(found["dropped"], lines.size() - kept);
      EXPECT_EQ(found.value("dropped_long", 0U), whole.size() - kept);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        if (!expected[i]) {
          EXPECT_THROW(find_line(*set_, i), Error);
          continue;
        }
        const SortedJson pair = line(i);
        for (const int side : {0, 1}) {
          const SortedJson& found_side = pair[side == 0 ? "chosen" : "rejected"];
          ASSERT_EQ(found_side["ids"], expected[i]->at(side)["ids"]) << seq_len << " line " << i;
          ASSERT_EQ(found_side["target"], expected[i]->at(side)["target"]) << seq_len << " " << i;
        }
        ASSERT_EQ(pair["prompt_len"], expected[i]->at(2));
      }
    }
    EXPECT_GE(kept_lengths, 2) << rule;
  }
}

TEST_F(ChatPairs, AreCutTheSameOnAnyRanksAndThreads) {
  std::vector<std::string> lines;
  for (int i = 0; i < 60; ++i)
    lines.push_back(dpo(repeated("why ", i), repeated("the tree ", i), repeated("no ", 60 - i)));
  const auto small = [](PackConfig& config) { config.unit_bytes = 4000; };
  EXPECT_GT(pack_lines("dpo", lines, small)["cut_answers"], 5);
  ASSERT_GT(set_->num_shards(), 3U);
  const auto expected = files_below(path_ / "set");

  comm::run_ranks(3, [&](comm::Communicator& world) {
    PackConfig config = testing::pack_config((path_ / "in.jsonl").string(), path_ / "ranks");
    config.documents.kind = "dpo";
    config.documents.chat.format = "minimind-v3";
    config.threads = 2;
    small(config);
    pack_with(config, tokenizer_, &world);
  });

  EXPECT_EQ(files_below(path_ / "ranks"), expected);
}

TEST_F(ChatPairs, AreCutToAShorterLengthAsPackCutsThem) {
  std::vector<std::string> lines;
  for (int i = 0; i < 60; ++i)
    lines.push_back(dpo(repeated("why ", i), repeated("the tree ", i), repeated("no ", 60 - i)));
  for (int i = 0; i < 20; ++i)
    lines.push_back(dpo("Why?", repeated("the tree ", i) + "x", repeated("the tree ", i + 1)));
  expect_cut_as_packed("dpo", lines, {48}, with_rule("end"));
  expect_cut_as_packed("dpo", lines, {8, 55}, with_rule("prompt"));
  expect_cut_as_packed("dpo", lines, {55}, with_rule("drop"));
}

/// Returns a side that begins with an answer without loss, so that a pair may have no prompt.
SortedJson side_after_answer(const std::string& first, const std::string& answer) {
  return SortedJson::array({{{"role", "assistant"}, {"content", first}, {"weight", 0}},
                            {{"role", "user"}, {"content", "q"}},
                            {{"role", "assistant"}, {"content", answer}}});
}

TEST_F(ChatPairs, MayHaveNoPromptInCommon) {
  const SortedJson found =
      pack_lines("dpo",
                 {SortedJson{{"chosen", side_after_answer("x", "Yes")},
                             {"rejected", side_after_answer("y", "No")}}
                      .dump(),
                  SortedJson{{"chosen", side_after_answer(repeated("the tree ", 100), "Yes")},
                             {"rejected", side_after_answer("y", "No")}}
                      .dump()},
                 [](PackConfig& config) { config.documents.chat.format = "plain"; });

  EXPECT_EQ(found["documents"], 1);
  EXPECT_EQ(found["dropped"], 1);
  const SortedJson pair = line(0);
  EXPECT_EQ(pair["prompt_len"], 0);
  EXPECT_EQ(found["tokens"], pair["chosen"]["ids"].size() + pair["rejected"]["ids"].size());
  EXPECT_NE(trained(pair["chosen"]).find("Yes"), std::string::npos);
  EXPECT_NE(trained(pair["rejected"]).find("No"), std::string::npos);
}

std::string losses_of(const PackReport& report) {
  std::string text;
  for (const Loss& loss : report.losses)
    text += (loss.level == log::Level::warn ? "warn " : "info ") + loss.text + "\n";
  return text;
}

TEST_F(ChatPairs, PackEndsByNamingWhatIsLost) {
  const std::string words = repeated("the tree ", 100);
  pack_lines("dpo", {dpo(words, "Yes", "No"), dpo("Why?", words, "No"), dpo("Why?", "Same", "Same"),
                     SortedJson{{"chosen", side_after_answer("x" + words, "ax")},
                                {"rejected", side_after_answer("y", "ay")}}
                         .dump(),
                     "{"});
  EXPECT_EQ(
      losses_of(report_),
      "warn 1 invalid record was skipped; the first (FILE:BYTE): " + set_->manifest().bad[0] +
          " (all in manifest.json; --max-bad 0 refuses them)\n"
          "warn dropped 2 of 4 pairs: a side has no answer target within --seq-len 64; a longer "
          "--seq-len keeps them\n"
          "warn dropped 1 of 4 pairs: chosen and rejected are equal\n"
          "warn cut 1 of 4 pairs to --seq-len 64: in 0 of them the prompt lost its "
          "beginning, in 1 a side lost its end (--cut-pairs end); a longer --seq-len keeps "
          "more\n");
  EXPECT_NE(inspect_text(*set_).find("dropped         3 (2 too long) (1 of equal sides)\n"),
            std::string::npos);

  pack_lines("sft",
             {sft(talk({"q", "a"})), sft(talk({"q", words})), sft(talk({words, "a"})),
              R"({"messages": [{"role": "assistant", "content": "\ud800"}]})"},
             [](PackConfig& config) { config.documents.on_bad_text = "replace"; });
  EXPECT_EQ(losses_of(report_),
            "warn dropped 1 of 4 conversations: no target within --seq-len 64; a longer --seq-len "
            "keeps them\n"
            "warn cut 1 of 4 conversations to --seq-len 64: they lost their end; a longer "
            "--seq-len keeps more\n"
            "info replaced bad text by 1 U+FFFD (--on-bad-text replace; skip drops such lines)\n");

  std::vector<std::string> many(99, sft(talk({"q", "a"})));
  many.push_back(sft(talk({"q", words})));
  pack_lines("sft", many);
  EXPECT_TRUE(losses_of(report_).starts_with("info cut 1 of 100 conversations"));
  const auto text = [](PackConfig& config) { config.documents.chat.format = ""; };
  pack_lines("pretrain", {R"({"text": ""})", R"({"text": "a"})"}, text);
  EXPECT_EQ(losses_of(report_), "warn dropped 1 of 2 texts: field 'text' (--field) is empty\n");
  pack_lines("pretrain", {R"({"text": "a"})"}, text);
  EXPECT_EQ(losses_of(report_), "");
  try {
    pack_lines("sft", {R"({"question": "q", "answer": "a"})"});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("--fields QUESTION,ANSWER"), std::string::npos)
        << error.what();
  }
}

TEST_F(ChatPairs, FieldsNameTheTextsOfARecord) {
  const auto with = [](const char* fields) {
    return [fields](PackConfig& config) { config.documents.chat.record_fields = fields; };
  };
  SortedJson found =
      pack_lines("sft",
                 {R"({"id": 3, "question": "Why?", "answer": "So."})", R"({"question": "Why?"})",
                  R"({"question": "Why?", "answer": 7})", R"({"conversations": []})",
                  R"({"question": null, "answer": "So."})"},
                 with("question,answer"));
  EXPECT_EQ(found["documents"], 1);
  EXPECT_EQ(line(0)["text"],
            "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nSo."
            "<|im_end|>\n");
  EXPECT_EQ(trained(line(0)), "<think>\n\n</think>\n\nSo.<|im_end|>");
  EXPECT_EQ(found["config"]["fields"], SortedJson({"question", "answer"}));
  const std::vector<std::string> reasons{"no field 'answer'", "field 'answer' is not a text",
                                         "no field 'question'", "field 'question' is null"};
  ASSERT_EQ(found["bad"].size(), reasons.size());
  for (std::size_t i = 0; i < reasons.size(); ++i)
    EXPECT_TRUE(found["bad"][i].get<std::string>().ends_with(": " + reasons[i])) << found["bad"][i];

  found = pack_lines("dpo", {R"({"q": "Why?", "yes": "So.", "no": "Eh"})"}, with("q,yes,no"));
  EXPECT_EQ(trained(line(0)["rejected"]), "<think>\n\n</think>\n\nEh<|im_end|>");
}

TEST_F(ChatPairs, FieldsAreCheckedAndBelongToTheSet) {
  const std::string record = R"({"q": "Why?", "a": "So.", "b": "No."})";
  const auto refusal = [&](const char* kind, const char* fields) {
    try {
      pack_lines(kind, {record}, [&](PackConfig& config) {
        config.documents.chat.record_fields = fields;
        config.documents.ignore_fields = "b";
      });
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
      return std::string(error.what());
    }
    return std::string("none");
  };

  EXPECT_NE(refusal("pretrain", "q,a").find("--fields q,a requires --kind sft, dpo, kto and rl"),
            std::string::npos);
  EXPECT_NE(refusal("sft", "q").find("takes two names"), std::string::npos);
  EXPECT_NE(refusal("dpo", "q,a").find("takes three names"), std::string::npos);
  EXPECT_NE(refusal("sft", "q,q").find("unique"), std::string::npos);
  EXPECT_NE(refusal("sft", "q,").find("--fields q,: names must be unique"), std::string::npos);
  EXPECT_EQ(refusal("sft", "q,a"), "none");
  EXPECT_EQ(set_->manifest().config_json,
            R"({"fields":["q","a"],"template":"minimind-v3","mask":"answer",)"
            R"("special_in_content":"text","copies":1,"add_system":0.0,"drop_empty_think":0.0,)"
            R"("on_bad_text":"error","unit_bytes":20000,"packing_rule":2})");
  PackConfig config = testing::pack_config((path_ / "in.jsonl").string(), path_ / "set");
  config.documents.kind = "sft";
  config.documents.chat.format = "minimind-v3";
  config.documents.chat.record_fields = "q,b";
  config.documents.ignore_fields = "a";
  try {
    pack_with(config, tokenizer_, nullptr);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_TRUE(contains(error.what(), R"(["q","a"] in the data set, ["q","b"] in this)"));
  }
}

}  // namespace
}  // namespace trireme::data_prep
