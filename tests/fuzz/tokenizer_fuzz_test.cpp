/// Nearly valid tokenizer.json and tokenizer_config.json must be refused with the name of the file,
/// or give a working tokenizer.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "fuzz/mutator.hpp"
#include "text/learn/bpe_trainer.hpp"
#include "text/learn/word_counter.hpp"
#include "text/tokenizer.hpp"

namespace trireme {
namespace {

using testing::Mutator;

constexpr const char* kFile = "tokenizer.json";
constexpr const char* kConfigFile = "tokenizer_config.json";

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Makes a vocabulary of the 256 bytes and some merges. It is small, so that edits hit the other
/// parts, too.
Json small_file() {
  text::WordCounter counter;
  for (int i = 0; i < 20; ++i) counter.add("the other return of the world, 你好 don't 3.14");
  return parse_json(text::train_bpe(counter, {.vocab_size = 310}).at(kFile), "trained");
}

/// Returns compact files of several tokenizer families.
std::vector<std::string> seeds() {
  Json llama = small_file();
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kLlama3}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
  llama["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({{{"type", "NFC"}}})}};
  llama["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  llama["model"]["ignore_merges"] = true;
  llama["added_tokens"] = Json::array();
  for (const char* content : {"<s>", "e", " </s>"}) {
    llama["added_tokens"].push_back({{"id", 280},
                                     {"content", content},
                                     {"single_word", true},
                                     {"lstrip", true},
                                     {"rstrip", true},
                                     {"normalized", true},
                                     {"special", false}});
  }
  llama["added_tokens"][0]["id"] = llama["model"]["vocab"].size();
  llama["added_tokens"][1]["id"] = llama["model"]["vocab"]["e"];
  llama["added_tokens"][2]["id"] = llama["model"]["vocab"].size() + 1;
  llama["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", Json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
      {"pair", Json::array()},
      {"special_tokens",
       {{"<s>",
         {{"id", "<s>"},
          {"ids", Json::array({llama["added_tokens"][0]["id"]})},
          {"tokens", Json::array({"<s>"})}}}}}};
  return {small_file().dump(), llama.dump()};
}

const std::vector<std::string> kDictionary{"null",
                                           "true",
                                           "0",
                                           "-1",
                                           "4294967295",
                                           "4294967296",
                                           "1e99",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           "[]",
                                           "{}",
                                           "\"",
                                           ",",
                                           ":",
                                           "\"ByteLevel\"",
                                           "\"Sequence\"",
                                           "\"NFC\"",
                                           "\"Split\"",
                                           "\"Digits\"",
                                           "\"individual_digits\":true,",
                                           "\\\\p{L}",
                                           "\\\\s+",
                                           "\\ud800",
                                           "\\u0120",
                                           "\xff",
                                           "\xC4\xA0",
                                           "[[[[[[[[[[[[[[[["};

/// Returns `seed` with edits. An edit in the vocabulary or the merges tests less than one
/// elsewhere, so half of the edits avoid them.
std::string mutated(const std::string& seed, Mutator& mutator) {
  std::string text = seed;
  if (mutator.one_in(2)) {
    mutator.mutate(text);
    return text;
  }
  const std::size_t vocab = text.find("\"vocab\"");
  const std::size_t past = text.find("\"merges\"");
  std::string head = text.substr(0, vocab);
  std::string tail = text.substr(past);
  mutator.mutate(mutator.one_in(4) ? tail : head);
  return head + text.substr(vocab, past - vocab) + tail;
}

void use(const text::Tokenizer& tokenizer) {
  const std::string text =
      "the <s> \xE4\xBD\xA0\xE5\xA5\xBD  don't</s>\n\n1234 e\xCC\x81 \xF0\x9F\x98\x80";
  for (const bool match : {true, false}) {
    const std::vector<std::uint32_t> ids = tokenizer.encode(text, {.match_added_tokens = match});
    for (const std::uint32_t id : ids) ASSERT_LT(id, tokenizer.vocab_size());
    static_cast<void>(tokenizer.decode(ids, match));
  }
}

TEST(Fuzz, TokenizerFilesAreRefusedByNameOrWork) {
  Mutator mutator(5, kDictionary);
  const std::vector<std::string> all = seeds();
  for (const std::string& seed : all) use(text::Tokenizer::from_files({{kFile, seed}}, "seed"));
  const std::string config =
      R"({"bos_token": "<s>", "eos_token": {"content": "e"}, "pad_token": null})";
  std::size_t accepted = 0;
  const long grown = testing::fuzz("tokenizer", testing::fuzz_cases(1'000'000), [&](std::size_t i) {
    std::map<std::string, std::string> files{{kFile, all[mutator.below(all.size())]},
                                             {kConfigFile, config}};
    if (i % 16 == 0) {
      mutator.mutate(files[kConfigFile]);
    } else {
      files[kFile] = mutated(files[kFile], mutator);
    }
    try {
      const text::Tokenizer tokenizer = text::Tokenizer::from_files(files, "case");
      if (++accepted % 16 == 0) {
        ASSERT_NO_FATAL_FAILURE(use(tokenizer)) << files[kFile];
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::data) << error.what();
    }
  });
  std::printf("%zu accepted\n", accepted);
  EXPECT_LT(grown, 200);
}

}  // namespace
}  // namespace trireme
