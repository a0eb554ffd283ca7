#include "text/spec/tokenizer_spec.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::data ? error.what()
                                           : std::string("wrong kind: ") + error.what();
  }
  return "accepted";
}

TokenizerSpec parse_changed(const std::function<void(Json&)>& change) {
  Json json = parse_json(samples::small_files().at("tokenizer.json"), "test");
  change(json);
  return parse_tokenizer_json(json.dump(), "T");
}

TEST(TokenizerSpec, RefusesByNameWhatItDoesNotSupport) {
  struct Case {
    const char* pointer;
    const char* value;
    const char* message;  // must be part of the error
  };

  const std::vector<Case> cases = {
      {"/version", R"("1.1")", "version = '1.1'"},
      {"/truncation", R"({"max_length": 8})", "truncation"},
      {"/padding", "{}", "padding"},
      {"/normalizer", R"({"type": "NFKD"})", "normalizer of type 'NFKD'"},
      {"/normalizer",
       R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})",
       "normalizer.normalizers[] of type 'Lowercase'"},
      {"/pre_tokenizer", "null", "pre_tokenizer is null"},
      {"/pre_tokenizer", R"({"type": "Metaspace"})", "type 'Metaspace'"},
      {"/pre_tokenizer/use_regex", "3", "use_regex"},
      {"/pre_tokenizer",
       R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})",
       "a step after ByteLevel"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": []})", "no ByteLevel"},
      {"/pre_tokenizer", R"({"type": "Split", "behavior": "Removed", "pattern": {"Regex": "a"}})",
       "behavior = 'Removed'"},
      {"/pre_tokenizer",
       R"({"type": "Split", "behavior": "Isolated", "invert": true, "pattern": {"Regex": "a"}})",
       "invert"},
      {"/pre_tokenizer", R"({"type": "Split", "behavior": "Isolated", "pattern": {"String": " "}})",
       "type 'String'"},
      {"/pre_tokenizer",
       R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "\\w+"}})",
       "Regex = \\w+ is not supported"},
      {"/post_processor", R"({"type": "BertProcessing"})", "post_processor.cls"},
      {"/post_processor", R"({"type": "BertProcessing", "cls": ["a", 1], "sep": [1, 2]})",
       "sep must be [token, id]"},
      {"/post_processor",
       R"({"type": "Sequence", "processors": [{"type": "BertProcessing", "cls": ["a", 1],
           "sep": ["b", 2]}, {"type": "BertProcessing", "cls": ["a", 1], "sep": ["b", 2]}]})",
       "two steps"},
      {"/post_processor", R"({"type": "Metaspace"})", "type 'Metaspace'"},
      {"/decoder", "null", "decoder is null"},
      {"/decoder", R"({"type": "Sequence", "decoders": []})", "decoder has no step"},
      {"/decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteLevel"}]})",
       "type 'Fuse'"},
      {"/decoder/type", R"("WordPiece")", "type 'WordPiece'"},
      {"/model/type", R"("WordPiece")", "type 'WordPiece'"},
      {"/model/dropout", "0.1", "dropout = 0.1"},
      {"/model/continuing_subword_prefix", R"("##")", "continuing_subword_prefix"},
      {"/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix"},
      {"/model/vocab", "[]", "vocab is array"},
      {"/model/vocab", R"({"a": 0})", "no token for byte 0"},
      {"/model/vocab/a", "-1", "vocab['a'] = -1"},
      {"/model/vocab/a", "4294967296", "4294967296"},
      {"/model/vocab/a", "1.5", "1.5"},
      {"/model/vocab/a", "40", "two tokens have the id 40"},
      {"/model/merges", "{}", "merges is object"},
      {"/model/merges/2", R"(["a", "zzzz"])", "merges[2]: token 'zzzz'"},
      {"/model/merges/2", R"("a b c")", "merges[2] must be two tokens"},
      {"/model/merges/2", R"(["a"])", "merges[2] must be two tokens"},
      {"/model/merges/2", R"("noblank")", "merges[2] must be two tokens"},
      {"/added_tokens/3/id", "9", "has id 9, but Hugging Face tokenizers gives it 3"},
      {"/added_tokens/3/content", "5", "added_tokens[3].content"},
      {"/added_tokens/3", "null", "added_tokens[3] is null"}};
  for (const Case& c : cases) {
    const std::string message = error_of([&] {
      parse_changed(
          [&](Json& json) { json[Json::json_pointer(c.pointer)] = Json::parse(c.value); });
    });
    EXPECT_NE(message.find(c.message), std::string::npos)
        << c.pointer << " = " << c.value << ": " << message;
  }
}

TEST(TokenizerSpec, RefusesBrokenTemplates) {
  for (const char* single :
       {"[]", R"([{"Sequence": {"id": "B"}}])",
        R"([{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}])",
        R"([{"SpecialToken": {"id": "<x>"}}, {"Sequence": {"id": "A"}}])", "[7]"}) {
    const auto action = [&] {
      parse_changed([&](Json& json) {
        json["post_processor"] = {{"type", "TemplateProcessing"},
                                  {"single", Json::parse(single)},
                                  {"special_tokens", Json::object()}};
      });
    };
    EXPECT_NE(error_of(action).find("post_processor"), std::string::npos) << single;
  }
}

TEST(TokenizerSpec, RefusesHostileFiles) {
  EXPECT_EQ(error_of([] { parse_tokenizer_json("{", "T"); }).find("T/tokenizer.json:"), 0U);
  EXPECT_EQ(error_of([] { parse_tokenizer_json("{", "a/b.json"); }).find("a/b.json:"), 0U);
  EXPECT_NE(error_of([] { parse_tokenizer_json("[]", "T"); }).find("T: tokenizer is array"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_tokenizer_json(std::string(100000, '['), "T"); }).find("nested"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              parse_changed(
                  [](Json& json) { json["added_tokens"][0]["content"] = std::string(2000, 'x'); });
            }).find("2000 bytes"),
            std::string::npos);
  // A cut or a changed byte anywhere gives an error or another valid file, never a crash.
  const std::string good = samples::small_files().at("tokenizer.json");
  samples::Rng rng(31);
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::string bad = good;
    if (i % 2 == 0) {
      bad.resize(rng() % bad.size());
    } else {
      bad[rng() % bad.size()] = static_cast<char>(rng());
    }
    refused += error_of([&] { parse_tokenizer_json(bad, "T"); }) != "accepted" ? 1 : 0;
  }
  EXPECT_GT(refused, 100);
}

TEST(TokenizerSpec, GivesAddedTokensTheIdsOfHuggingFace) {
  const auto token = [](const char* content, int id) {
    return Json{{"id", id}, {"content", content}, {"special", false}};
  };
  const TokenizerSpec spec = parse_changed([&](Json& json) {
    json["added_tokens"].push_back(token("<new>", 700));
    json["added_tokens"].push_back(
        token("a", json["model"]["vocab"]["a"].get<int>()));  // the model has this token already
    json["added_tokens"].push_back(token("<next>", 701));
    json["added_tokens"].push_back(token("", 9999));      // ignored
    json["added_tokens"].push_back(token("<new>", 700));  // repeated with the same id
  });

  EXPECT_EQ(spec.added.size(), 39U);
  EXPECT_EQ(spec.vocab_size, 702U);
  EXPECT_NE(
      error_of([&] {
        parse_changed([&](Json& json) { json["added_tokens"].push_back(token("<new>", 701)); });
      }).find("gives it 700"),
      std::string::npos);
}

/// Expected: Hugging Face tokenizers 0.23.3.
TEST(TokenizerSpec, HolesInTheVocabularyDoNotMoveTheIdsOfAddedTokens) {
  const auto token = [](const char* content, int id) {
    return Json{{"id", id}, {"content", content}, {"special", false}};
  };
  const TokenizerSpec spec = parse_changed([&](Json& json) {
    json["model"]["vocab"]["a"] = 5000;
    json["added_tokens"].push_back(token("a", 5000));
    json["added_tokens"].push_back(token("<new>", 700));
    json["added_tokens"].push_back(token("<next>", 701));
  });

  EXPECT_EQ(spec.added.back().id, 701U);
  EXPECT_EQ(spec.vocab_size, 5001U);
}

TEST(TokenizerSpec, RefusesAConfigThatDisagrees) {
  const auto load = [](const char* config) {
    auto files = samples::small_files();
    files["tokenizer_config.json"] = config;
    return error_of([&] { Tokenizer::from_files(files, "T"); });
  };
  EXPECT_EQ(load("{}"), "accepted");
  EXPECT_EQ(load(R"({"eos_token": {"content": "<|im_end|>", "lstrip": false}, "bos_token": null})"),
            "accepted");
  EXPECT_NE(load(R"({"eos_token": "</s>"})").find("eos_token = '</s>'"), std::string::npos);
  EXPECT_NE(load(R"({"eos_token": 2})").find("eos_token must be"), std::string::npos);
  EXPECT_NE(load(R"({"added_tokens_decoder": {"1": {"content": "<|im_end|>"}}})").find("it is 2"),
            std::string::npos);
  EXPECT_NE(load(R"({"added_tokens_decoder": {"700": {"content": "<x>"}}})").find("absent"),
            std::string::npos);
  EXPECT_NE(load("nonsense").find("tokenizer_config.json"), std::string::npos);
}

}  // namespace
}  // namespace trireme::text
