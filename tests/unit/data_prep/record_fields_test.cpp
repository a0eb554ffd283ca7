#include "unit/data_prep/small_chats.hpp"

namespace trireme::data_prep {
namespace {

using testing::ChatPack;
using testing::message;
using testing::talk;
using testing::write_text;

const std::string kAnswer = R"({"role": "assistant", "content": "a"})";
const std::string kTalk = R"([{"role": "user", "content": "q"}, )" + kAnswer + "]";

class FieldsOfRecords : public ChatPack {
 protected:
  /// Returns the error of a pack of these lines, which must not leave a directory.
  std::string refusal(const std::string& kind, const std::vector<std::string>& lines,
                      ErrorKind expected, const std::function<void(PackConfig&)>& change = {}) {
    std::filesystem::remove_all(path_ / "set");
    std::string told = "no error";
    try {
      pack_lines(kind, lines, change);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), expected) << error.what();
      EXPECT_FALSE(std::filesystem::exists(path_ / "set")) << error.what();
      told = error.what();
    }
    return told;
  }

  std::string losses() {
    std::string text;
    for (const Loss& loss : report_.losses)
      text += (loss.level == log::Level::warn ? "warning: " : "info: ") + loss.text + "\n";
    return text;
  }
};

TEST_F(FieldsOfRecords, AreCountedByRecordInSummaryManifestAndInspection) {
  const std::string odd =
      R"({"id": "r1", "score": 0.5, "empty": "", "none": null, "list": [], "messages": [)"
      R"({"role": "user", "content": "q", "name": "me", "train": true}, )"
      R"({"role": "user", "content": "q", "name": "you"}, )"
      R"({"role": "assistant", "content": [{"type": "text", "text": "a", "cache": 1}], "foo": 3}]})";
  const SortedJson found = pack_lines("sft", {odd, odd, R"({"messages": )" + kTalk + "}"});

  const SortedJson expected = {{"id", 2},
                               {"score", 2},
                               {"messages[].name", 2},
                               {"messages[].train", 2},
                               {"messages[].foo", 2},
                               {"messages[].content[].cache", 2}};
  EXPECT_EQ(found["ignored_fields"], expected);
  EXPECT_NE(inspect_text(*set_).find("ignored field   messages[].foo, in 2 records\n"),
            std::string::npos);
  EXPECT_NE(losses().find("warning: these fields are not empty but were not read: id in 2 "
                          "records, messages[].content[].cache in 2 records"),
            std::string::npos)
      << losses();
}

TEST_F(FieldsOfRecords, AreNoWarningWhereTheUserNamesThem) {
  const std::string record = R"({"id": 7, "messages": )" + kTalk + "}";
  const SortedJson found = pack_lines(
      "sft", {record}, [](PackConfig& config) { config.documents.ignore_fields = "id"; });

  EXPECT_EQ(losses(), "info: ignored fields of --ignore-fields: id in 1 record\n");
  const std::string named = found["content_xxh3"];
  pack_lines("sft", {record});
  EXPECT_EQ(set_->content_hash(), named) << "the option decides no bytes";
}

TEST_F(FieldsOfRecords, DoNotChangeASetWithoutThem) {
  pack_lines("sft", {R"({"messages": )" + kTalk + "}"});
  EXPECT_EQ(set_->manifest().config_json.find("ignore"), std::string::npos);
  EXPECT_TRUE(set_->manifest().ignored_fields.empty());
  EXPECT_EQ(read_file(path_ / "set" / "manifest.json").find("ignored_fields"), std::string::npos);
  EXPECT_EQ(losses(), "");
}

TEST_F(FieldsOfRecords, AreThoseThatATemplateDoesNotWrite) {
  const std::string record =
      R"({"messages": [{"role": "system", "content": "s", "tools": [{"name": "f"}]}, )"
      R"({"role": "user", "content": "q"}, )"
      R"({"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": )"
      R"([{"name": "f", "arguments": {}}]}, {"role": "tool", "content": "3"}, )" +
      kAnswer + "]}";
  pack_lines("sft", {record}, [](PackConfig& config) { config.seq_len = 2048; });
  EXPECT_EQ(losses(), "");
  const SortedJson found = pack_lines("sft", {record}, [](PackConfig& config) {
    config.seq_len = 2048;
    config.documents.chat.format = "minimind-v2";
  });

  const auto name = [](const char* part) {
    return std::string(part) + " (not written by --template minimind-v2)";
  };
  const SortedJson expected = {{name("tools"), 1},
                               {name("tool_calls"), 1},
                               {name("reasoning_content"), 1},
                               {name("messages of role tool"), 1}};
  EXPECT_EQ(found["ignored_fields"], expected);
}

TEST_F(FieldsOfRecords, AreThoseThatATemplateWithTheEndTokenDoesNotWrite) {
  write_text(path_ / "template.jinja",
             "{% for m in messages %}{{ m.role + m.content + eos_token }}{% endfor %}");
  const std::string record =
      R"({"tools": [{"name": "f"}], "messages": [{"role": "user", "content": "q"}, )"
      R"({"role": "assistant", "content": "a", "reasoning_content": "hm"}]})";
  const SortedJson found = pack_lines("sft", {record}, [this](PackConfig& config) {
    config.documents.chat.format = "";
    config.documents.chat.template_file = (path_ / "template.jinja").string();
  });

  std::vector<std::string> names;
  for (const auto& [name, count] : found["ignored_fields"].items()) names.push_back(name);
  ASSERT_EQ(names.size(), 2U);
  EXPECT_TRUE(names[0].starts_with("reasoning_content (not written by --template custom-"));
  EXPECT_TRUE(names[1].starts_with("tools (not written by --template custom-"));
}

TEST_F(FieldsOfRecords, InsideATextAreCountedToo) {
  const auto texts = [](PackConfig& config) { config.documents.chat.format = ""; };
  const SortedJson found = pack_lines(
      "pretrain", {R"({"text": "a", "url": "u"})", R"({"text": "b", "url": ""})"}, texts);

  EXPECT_EQ(found["ignored_fields"], (SortedJson{{"url", 1}}));
}

TEST_F(FieldsOfRecords, StayAFewWhereEveryRecordHasItsOwn) {
  std::vector<std::string> lines;
  for (int i = 0; i < 300; ++i)
    lines.push_back(formatted(R"({{"key{}": 1, "messages": {}}})", i, kTalk));
  const auto packed = [&](std::int64_t threads, std::int64_t unit_bytes) {
    return pack_lines("sft", lines, [&](PackConfig& config) {
      config.threads = threads;
      config.unit_bytes = unit_bytes;
    })["ignored_fields"];
  };

  const SortedJson found = packed(1, 1 << 20);
  EXPECT_EQ(found.size(), 201U);
  EXPECT_EQ(found["(other fields)"], 100);
  EXPECT_EQ(packed(3, 1 << 20), found);
}

TEST_F(FieldsOfRecords, WithTextAreRefusedBesideOwnFields) {
  const auto own = [](const std::string& ignored) {
    return [=](PackConfig& config) {
      config.documents.chat.record_fields = "instruction,output";
      config.documents.ignore_fields = ignored;
    };
  };
  const std::string empty = R"({"instruction": "do", "input": "", "output": "done", "n": 3})";
  const std::string full = R"({"instruction": "do", "input": "with", "output": "done"})";
  const std::string told = refusal("sft", {empty, full, full}, ErrorKind::usage, own(""));
  EXPECT_NE(told.find("--fields instruction,output leaves 'input' unread, which has text in 2 "
                      "records, first in " +
                      (path_ / "in.jsonl").string() + ", byte " + std::to_string(empty.size() + 1)),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("--ignore-fields input"), std::string::npos);
  EXPECT_EQ(refusal("sft", {empty, full}, ErrorKind::usage, own("input")), "no error");
  EXPECT_EQ(refusal("sft", {empty}, ErrorKind::usage, own("")), "no error");
  EXPECT_NE(refusal("sft", {empty}, ErrorKind::usage, own("a,,b")).find("--ignore-fields a,,b"),
            std::string::npos);
  // Half of the answers of a KTO data set are negative examples.
  const auto kto = refusal(
      "sft", {R"({"prompt": "q", "completion": "a", "label": false})"}, ErrorKind::usage,
      [](PackConfig& config) { config.documents.chat.record_fields = "prompt,completion"; });
  EXPECT_NE(kto.find("leaves 'label' unread"), std::string::npos) << kto;
}

TEST_F(FieldsOfRecords, MarksSwitchTargetsOffUnderBothMasksAndInPairs) {
  SortedJson chat = talk({"q", "bad", "r", "good"});
  chat[1]["weight"] = 0;
  SortedJson all_off = chat;
  all_off[3]["train"] = false;
  const auto wide = [](const char* mask) {
    return [=](PackConfig& config) {
      config.seq_len = 256;
      config.documents.chat.mask = mask;
    };
  };
  const std::string good = "<think>\n\n</think>\n\ngood<|im_end|>";
  for (const char* mask : {"answer", "minimind"}) {
    const SortedJson found = pack_lines("sft", {sft(chat), sft(all_off)}, wide(mask));
    EXPECT_EQ(found["documents"], 1);
    EXPECT_EQ(found["dropped"], 1);
    EXPECT_NE(losses().find("or the field weight or train disables its answers"), std::string::npos)
        << losses();
    EXPECT_EQ(trained(line(0)), good + (mask[0] == 'm' ? "\n" : ""));
    EXPECT_NE(line(0)["text"].get<std::string>().find("bad<|im_end|>"), std::string::npos);
  }

  SortedJson other = chat;
  other[3]["content"] = "worse";
  pack_lines("dpo", {SortedJson{{"chosen", chat}, {"rejected", other}}.dump()}, wide("answer"));
  EXPECT_EQ(trained(line(0)["chosen"]), good);
  EXPECT_EQ(trained(line(0)["rejected"]), "<think>\n\n</think>\n\nworse<|im_end|>");
}

TEST_F(FieldsOfRecords, ThePromptOfAPairIsNotOneIfTheSidesBeginWithIt) {
  const auto pair = [&](const std::string& prompt) {
    return R"({"prompt": ")" + prompt + R"(", "chosen": )" + kTalk +
           R"(, "rejected": [{"role": "user", "content": "q"}, )" +
           R"({"role": "assistant", "content": "b"}]})";
  };
  const SortedJson found = pack_lines("dpo", {pair("q"), pair("other")});

  EXPECT_EQ(found["ignored_fields"], (SortedJson{{"prompt", 1}}));
}

TEST_F(FieldsOfRecords, EachWrongInputIsAnsweredWithAdviceThatFits) {
  struct Case {
    std::string kind, line, advice;
  };

  const std::string talk_record = R"({"messages": )" + kTalk + "}";
  const std::vector<Case> cases = {
      {"sft", R"({"messages": [)", "(it ends too early, after 14 bytes)"},
      {"sft", R"({"messages": [{"role" "user"}]})", "(at byte "},
      {"sft", R"({"messages": [{"role": "user", "content": "q"}, {"from": "gpt", "value": "a"}]})",
       "message 1: no role; 'from' and 'value' are names of the form sharegpt"},
      {"dpo", R"({"chosen": {"from": "gpt", "value": "a"}, "rejected": {}})",
       "field 'chosen' is one message, and there is no field 'conversations'"},
      {"sft", R"({"messages": [{"role": "human", "content": "q"}]})",
       "must be system, user, assistant or tool; human is a name of the form sharegpt, which has "
       "'from' and 'value': write human as user"},
      {"sft", R"({"messages": []})", "'messages' is an empty list, must hold at least one message"},
      {"dpo", R"({"instruction": "i", "input": "", "output": "o"})",
       "no field 'chosen'; it has the form alpaca, which --kind sft packs"},
      {"pretrain", R"({"prompt": "q", "completion": "a"})",
       "it has the form prompt-completion, which --kind sft packs"},
      {"sft", R"({"prompt": [], "completion": []})", "field 'prompt' is an empty list"},
      {"dpo", R"({"prompt": "q", "completion": "a", "label": true})",
       "it is a labeled answer ('prompt', 'completion', 'label'), which --kind kto packs"},
      {"sft", R"({"question": "q", "answer": "a"})",
       "its texts are 'question', 'answer': name the two of a question and its answer, --fields"},
      {"sft", R"({"a": "q\udc00", "b": 1})", "no field 'conversations' (nor 'messages')"},
      {"sft", R"({"text": "t"})", "it is a text ('text'), which --kind pretrain packs"},
      {"sft", R"({"chosen": [], "rejected": []})", "which --kind dpo packs"},
      {"dpo", talk_record, "it is a conversation ('messages'), which --kind sft packs"},
      {"pretrain", talk_record,
       "no field 'text'; it is a conversation ('messages'), which --kind"}};
  for (const Case& each : cases) {
    const std::string told = refusal(each.kind, {each.line}, ErrorKind::data, [&](PackConfig& c) {
      if (each.kind == "pretrain") c.documents.chat.format = "";
      c.documents.on_bad_text = "skip";
    });
    EXPECT_NE(told.find(each.advice), std::string::npos) << each.line << "\n" << told;
    EXPECT_EQ(told.find("two texts"), std::string::npos) << told;
  }
}

TEST_F(FieldsOfRecords, AnExistingDirectoryStaysWithItsFiles) {
  const auto pack_nothing = [&] {
    write_text(path_ / "in.jsonl", "{\"messages\": []}\n");
    PackConfig config = testing::pack_config((path_ / "in.jsonl").string(), path_ / "mine");
    config.documents.kind = "sft";
    config.documents.chat.format = "minimind-v3";
    EXPECT_THROW(testing::pack_with(config, tokenizer_, nullptr), Error);
  };
  std::filesystem::create_directories(path_ / "mine");
  pack_nothing();
  EXPECT_TRUE(std::filesystem::is_empty(path_ / "mine"));

  std::filesystem::copy(tokenizer_,
                        path_ / "mine" / "tokenizer");  // this may be the only copy
  pack_nothing();
  EXPECT_TRUE(std::filesystem::exists(path_ / "mine" / "tokenizer" / "tokenizer.json"));
  try {
    data::TokenSet::open(path_ / "mine");
    FAIL();
  } catch (const Error& error) {
    const std::string told = error.what();
    EXPECT_NE(told.find("contains a tokenizer but no shard"), std::string::npos) << told;
    EXPECT_EQ(told.find("to continue it"), std::string::npos) << told;
  }
}

}  // namespace
}  // namespace trireme::data_prep
