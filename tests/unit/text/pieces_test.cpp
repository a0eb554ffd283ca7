#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/spec/piece_spec.hpp"
#include "text/tokenizer.hpp"

/// Models of SentencePiece. The oracle tokenizer_pieces.py compares them with Hugging Face.
namespace trireme::text {
namespace {

using Ids = std::vector<std::uint32_t>;

/// Returns a tokenizer.json in the style of Llama 2: ids 3 to 258 are the bytes.
Json small_json() {
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte)
    vocab[byte_token_name(static_cast<std::uint8_t>(byte))] = 3 + byte;
  std::uint32_t next = 259;
  for (const char* token : {"▁", "a", "b", "▁a", "ab", "▁ab", "▁▁"}) vocab[token] = next++;
  Json added = Json::array();
  for (const char* token : {"<unk>", "<s>", "</s>"})
    added.push_back(
        {{"id", vocab[token]}, {"content", token}, {"normalized", false}, {"special", true}});
  const Json space = {{"String", " "}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "▁"}},
              {{"type", "Replace"}, {"pattern", space}, {"content", "▁"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", {"▁ a", "a b", "▁a b", "▁ ▁"}}}}};
}

Tokenizer tokenizer_of(const Json& json) {
  return Tokenizer::from_files({{"tokenizer.json", json.dump()}}, "T");
}

Tokenizer changed(const std::function<void(Json&)>& change) {
  Json json = small_json();
  change(json);
  return tokenizer_of(json);
}

TEST(Pieces, EncodeLikeLlama2) {
  const Tokenizer tokenizer = tokenizer_of(small_json());

  EXPECT_EQ(tokenizer.encode("ab a"), (Ids{264, 262}));
  EXPECT_EQ(tokenizer.encode(""), Ids());
  EXPECT_EQ(tokenizer.encode(" "), Ids{265});
  EXPECT_EQ(tokenizer.encode("é\n"), (Ids{259, 3 + 0xC3, 3 + 0xA9, 3 + 0x0A}));
  // Every part between added tokens gets its own space.
  EXPECT_EQ(tokenizer.encode("<s>a</s>b"), (Ids{1, 262, 2, 259, 261}));
  EXPECT_EQ(tokenizer.encode("<s>", {.match_added_tokens = false}).size(), 4U);
}

TEST(Pieces, DecodeCutsOneSpaceAndJoinsBytes) {
  const Tokenizer tokenizer = tokenizer_of(small_json());

  EXPECT_EQ(tokenizer.decode(Ids{264, 262}), "ab a");
  EXPECT_EQ(tokenizer.decode(Ids{265, 260}), " a");
  EXPECT_EQ(tokenizer.decode(Ids{1, 260, 2}, true), "a");
  EXPECT_EQ(tokenizer.decode(Ids{3 + 0xC3, 3 + 0xA9}), "é");
  EXPECT_EQ(tokenizer.decode(Ids{3 + 0x41, 3 + 0xC3, 260}), "\uFFFD\uFFFDa")
      << "one invalid byte makes the whole run invalid, as in Hugging Face";
  EXPECT_EQ(tokenizer.token_bytes(262), " a");
  EXPECT_EQ(tokenizer.token_bytes(3 + 0x0A), "\n");
}

TEST(Pieces, StreamsTheSameText) {
  const Tokenizer tokenizer = tokenizer_of(small_json());
  const std::vector<Ids> rows = {{265, 262, 260}, {3 + 0xC3, 260, 3 + 0xC3, 3 + 0xA9}, {262}, {}};

  StreamDecoder stream(tokenizer);
  for (const Ids& ids : rows) {
    std::string text;
    for (const std::uint32_t id : ids) text += stream.push(id);
    text += stream.finish();  // also resets the decoder
    EXPECT_EQ(text, tokenizer.decode(ids));
  }

  StreamDecoder continued(tokenizer, false, /*begins_text=*/false);
  EXPECT_EQ(continued.push(262), " a") << "an answer that continues a text keeps its space";
}

TEST(Pieces, MetaspaceAddsASpaceOnlyWhereTheTextBegins) {
  const Tokenizer tokenizer = changed([](Json& json) {
    json["normalizer"] = nullptr;
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  });

  EXPECT_EQ(tokenizer.encode("a<s>a"), (Ids{262, 1, 260}));
  EXPECT_EQ(tokenizer.encode("a", {.begins_text = false}), Ids{260});
}

TEST(Pieces, UnknownCharactersWithoutBytesJoin) {
  const auto without_bytes = [](bool fuse) {
    return changed([&](Json& json) {
      json["model"]["byte_fallback"] = false;
      json["model"]["fuse_unk"] = fuse;
    });
  };

  EXPECT_EQ(without_bytes(true).encode("éüa"), (Ids{259, 0, 260}));
  EXPECT_EQ(without_bytes(false).encode("éüa"), (Ids{259, 0, 0, 260}));
}

TEST(Pieces, UnigramTakesTheMostProbableTokens) {
  const Tokenizer tokenizer = changed([](Json& json) {
    json["model"] = {
        {"type", "Unigram"},
        {"unk_id", 0},
        {"vocab", Json::parse(R"([["<unk>", 0], ["<s>", 0], ["</s>", 0], ["▁", -2], ["a", -3],
                                      ["b", -3], ["ab", -5], ["▁a", -4.5]])")}};
  });

  EXPECT_EQ(tokenizer.encode("ab"), (Ids{3, 6})) << "-2 - 5 > -4.5 - 3";
  EXPECT_EQ(tokenizer.encode("xya"), (Ids{3, 0, 4}));
}

TEST(Pieces, HashKnowsEveryPart) {
  const std::string hash = tokenizer_of(small_json()).content_hash();

  EXPECT_EQ(hash, tokenizer_of(small_json()).content_hash());
  EXPECT_NE(hash, changed([](Json& json) { json["normalizer"] = nullptr; }).content_hash());
  EXPECT_NE(hash, changed([](Json& json) { json["model"]["fuse_unk"] = false; }).content_hash());
  EXPECT_NE(hash, changed([](Json& json) {
                    json["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
                  }).content_hash());
}

TEST(Pieces, RefuseByNameWhatIsNotSupported) {
  struct Case {
    const char* pointer;
    const char* value;
    const char* message;
  };

  const std::vector<Case> cases = {
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": ""})",
       "precompiled_charsmap is damaged: it has 0 bytes"},
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "a"})",
       "precompiled_charsmap is not base64"},
      {"/normalizer", R"({"type": "BertNormalizer"})", "type 'BertNormalizer'"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""})",
       "Regex = a+ is not supported"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})",
       "String is empty"},
      {"/pre_tokenizer", R"({"type": "Whitespace"})", "type 'Whitespace'"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})", "must be one character"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "no"})",
       "prepend_scheme = 'no'"},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"String": " "}, "behavior": "Contiguous"})",
       "behavior = 'Contiguous'"},
      {"/pre_tokenizer",
       R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type":
           "Metaspace", "replacement": "_", "prepend_scheme": "first"}]})",
       "'first' is not supported after another step"},
      {"/decoder/decoders/2", R"({"type": "WordPiece"})", "type 'WordPiece'"},
      {"/decoder/decoders/2", R"({"type": "ByteFallback"})", "type 'ByteFallback'"},
      {"/decoder/decoders/3/stop", "1", "stop is not supported"},
      {"/model/unk_token", R"("<none>")", "unk_token = '<none>'"},
      {"/model/dropout", "0.5", "dropout = 0.5"},
      {"/model/type", R"("WordLevel")", "type 'WordLevel'"},
      {"/model", R"({"type": "Unigram", "vocab": [["<unk>", 0]]})", "unk_id is null"},
      {"/model", R"({"type": "Unigram", "unk_id": 1, "vocab": [["<unk>", 0]]})", "unk_id = 1"},
      {"/model", R"({"type": "Unigram", "unk_id": 0, "vocab": [["a", 0], ["a", 1]]})",
       "the token 'a' has two ids"},
      {"/model", R"({"type": "Unigram", "unk_id": 0, "vocab": {"a": 0}})", "vocab is object"}};
  for (const Case& c : cases) {
    std::string message = "accepted";
    try {
      (void)changed(
          [&](Json& json) { json[Json::json_pointer(c.pointer)] = Json::parse(c.value); });
    } catch (const Error& error) {
      message = error.kind() == ErrorKind::data ? error.what() : "wrong kind";
    }
    EXPECT_NE(message.find(c.message), std::string::npos) << c.value << ": " << message;
  }
}

}  // namespace
}  // namespace trireme::text
