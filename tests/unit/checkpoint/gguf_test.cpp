#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checkpoint/exchange/rotary_rows.hpp"
#include "checkpoint/gguf/gguf_architecture.hpp"
#include "checkpoint/gguf/gguf_file.hpp"
#include "checkpoint/gguf/gguf_tokenizer.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "core/error.hpp"
#include "text/spec/piece_spec.hpp"
#include "unit/checkpoint/hf_models.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

std::string error_of(const std::function<void()>& action, ErrorKind kind = ErrorKind::usage) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

std::string tokenizer_error(const std::string& tokenizer, std::int64_t vocab_size = 300) {
  return error_of([&] {
    GgufValues values;
    put_gguf_tokenizer({{"tokenizer.json", tokenizer}}, vocab_size, "DIR", values);
  });
}

/// A SentencePiece-BPE tokenizer with byte tokens, the characters a, b, c and U+2581, and `tokens`.
/// `merges` is a JSON array, `more` are further members of the model.
std::string piece_tokenizer(const std::vector<std::string>& tokens, const std::string& merges,
                            const std::string& more = "", const std::string& kind = "Prepend") {
  SortedJson vocab = SortedJson::object();
  std::int64_t id = 0;
  vocab["<unk>"] = id++;
  for (int byte = 0; byte < 256; ++byte)
    vocab[text::byte_token_name(static_cast<std::uint8_t>(byte))] = id++;
  for (const char* character : {"a", "b", "c", "\u2581"}) vocab[character] = id++;
  for (const std::string& token : tokens) vocab[token] = id++;
  const std::string spaces =
      kind == "Prepend"
          ? R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})"
          : R"("pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true})";
  return formatted(
      R"({{"version": "1.0", "model": {{"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "vocab": {}, "merges": {}{}}}, "decoder": {{"type": "Sequence", "decoders": [{{"type": "Replace", "pattern": {{"String": "\u2581"}}, "content": " "}}, {{"type": "ByteFallback"}}, {{"type": "Fuse"}}]}}, {}}})",
      vocab.dump(), merges, more, spaces);
}

TEST(Gguf, BlocksHaveAScaleAndRoundHalfAwayFromZero) {
  std::vector<float> values(64, 0.0F);
  values[0] = 127.0F;  // scale 1
  values[1] = -2.5F;
  values[2] = 2.5F;
  values[3] = 0.49F;
  std::vector<std::byte> blocks(gguf_bytes(GgufType::q8_0, 64));
  ASSERT_EQ(blocks.size(), 68U);

  quantize_q8_0(values, blocks);

  const auto number = [&](std::size_t at) { return static_cast<std::int8_t>(blocks[at]); };
  std::uint16_t scale = 0;
  std::memcpy(&scale, blocks.data(), 2);
  EXPECT_EQ(from_f16_bits(scale), 1.0F);
  EXPECT_EQ(number(2), 127);
  EXPECT_EQ(number(3), -3);
  EXPECT_EQ(number(4), 3);
  EXPECT_EQ(number(5), 0);
  for (std::size_t i = 34; i < 68; ++i) EXPECT_EQ(number(i), 0);  // a block of zeros
}

TEST(Gguf, TheArchitectureFollowsFromTheOptionsOfTheModel) {
  const auto name = [](const model::ModelConfig& config) {
    return std::string(gguf_architecture(config, "", "DIR").name);
  };
  model::ModelConfig config = small(true, true);
  EXPECT_EQ(name(config), "qwen3");
  config.moe.num_experts = 4;
  EXPECT_EQ(name(config), "qwen3moe");
  config = small(false, true);
  EXPECT_EQ(name(config), "llama");
  config.qkv_bias = true;
  EXPECT_EQ(name(config), "qwen2");
  config.mlp_bias = true;
  EXPECT_EQ(name(config), "llama");
}

TEST(Gguf, ARefusalNamesTheDifferencesFromThePreferredArchitecture) {
  model::ModelConfig config = small(true, true);
  config.qkv_bias = true;
  config.attention_output_bias = true;  // Llama has both, but no model.qk_norm
  const auto refusal = [&](const char* preferred) {
    return error_of([&] { gguf_architecture(config, preferred, "DIR"); });
  };
  EXPECT_NE(refusal("qwen3").find("model.attention_output_bias = true, model.qkv_bias = true."),
            std::string::npos)
      << refusal("qwen3");
  EXPECT_NE(refusal("").find("with model.qk_norm = true."), std::string::npos) << refusal("");
}

TEST(Gguf, AModelThatLlamaCppDoesNotComputeIsRefusedWithItsOptions) {
  const auto refusal = [](const std::function<void(model::ModelConfig&)>& change,
                          bool qwen = true) {
    model::ModelConfig config = small(qwen, true);
    change(config);
    return error_of([&] { gguf_architecture(config, "", "DIR"); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refusal([](auto& config) { config.activation = "relu2"; }), "model.activation = relu2.");
  has(refusal([](auto& config) { config.no_rope_layers = "1"; }), "model.no_rope_layers = 1");
  has(refusal([](auto& config) { config.qk_norm_whole = true; }), "model.qk_norm_whole = true");
  has(refusal([](auto& config) { config.pre_norms = false; }), "model.pre_norms = false");
  has(refusal([](auto& config) { config.logit_softcap = 30; }), "model.logit_softcap = 30");
  has(refusal([](auto& config) { config.attention_softcap = 50; }), "model.attention_softcap = 50");
  has(refusal([](auto& config) {
        config.rope_scaling = "yarn,factor=4,original_max_position_embeddings=64";
      }),
      "model.rope_scaling = yarn");
  has(refusal([](auto& config) {
        config.rope_scaling = "llama3,factor=4,original_max_position_embeddings=64";
      }),
      "model.rope_scaling = llama3");
  const auto experts = [](auto& config) { config.moe.num_experts = 4; };
  has(refusal([&](auto& config) {
        experts(config);
        config.moe.num_shared_experts = 1;
      }),
      "model.num_shared_experts = 1");
  has(refusal(
          [&](auto& config) {
            experts(config);
            config.moe.router_score = "sigmoid";
          },
          false),
      "model.router_score = sigmoid");
}

model::ModelConfig like_gemma2() {
  model::ModelConfig config = small(false, true);
  config.num_layers = 4;
  config.post_norms = true;
  config.activation = "gelu_tanh";
  config.embedding_scale = std::sqrt(32.0);
  config.attention_softcap = 50;
  config.logit_softcap = 30;
  config.sliding_window = 8;
  config.full_attention_layers = "1,3";
  return config;
}

model::ModelConfig like_pythia() {
  model::ModelConfig config = small(false, false);
  config.norm = "layer";
  config.mlp = "plain";
  config.activation = "gelu_tanh";
  config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
  config.parallel_residual = true;
  config.rotary_dim = 4;
  return config;
}

TEST(Gguf, AnArchitectureWithTheNameOfTheFamilyComesFirst) {
  const model::ModelConfig config = small(false, true);
  EXPECT_EQ(gguf_architecture(config, "mistral", "DIR").name, "llama");
  EXPECT_EQ(gguf_architecture(config, "phi3", "DIR").name, "phi3");
  model::ModelConfig qwen = small(true, true);
  EXPECT_EQ(gguf_architecture(qwen, "phi3", "DIR").name, "qwen3");
}

TEST(Gguf, AGemma2ModelThatLlamaCppDoesNotComputeIsRefusedWithItsOptions) {
  EXPECT_EQ(gguf_architecture(like_gemma2(), "", "DIR").name, "gemma2");
  const auto has = [](const std::function<void(model::ModelConfig&)>& change,
                      const std::string& part) {
    model::ModelConfig config = like_gemma2();
    change(config);
    const std::string text = error_of([&] { gguf_architecture(config, "", "DIR"); });
    EXPECT_NE(text.find(cat("computes no model with ", part, ". The")), std::string::npos) << text;
  };
  has([](auto& config) { config.attention_softcap = 0; }, "model.attention_softcap = 0");
  has([](auto& config) { config.logit_softcap = 0; }, "model.logit_softcap = 0");
  has([](auto& config) { config.full_attention_layers = "3"; },
      "model.full_attention_layers = \"3\" instead of \"1,3\"");
  has([](auto& config) { config.embedding_scale = 2; },
      "model.embedding_scale = 2 instead of the root of model.hidden_size");
  has([](auto& config) { config.attention_scale_dim = 16; },
      "model.attention_scale_dim = 16 instead of 8");
  has([](auto& config) { config.tie_embeddings = false; }, "model.tie_embeddings = false");
  has([](auto& config) { config.local_rope_theta = 5; }, "model.local_rope_theta = 5");
}

TEST(Gguf, GemmaModelsWithTheLayersOfTheLargestOneScaleScoresByTheirWidth) {
  model::ModelConfig config = like_gemma2();
  config.num_layers = 46;
  config.head_dim = 16;
  config.full_attention_layers = "1";
  for (int layer = 3; layer < 46; layer += 2)
    config.full_attention_layers += formatted(",{}", layer);
  config.attention_scale_dim = 8;  // hidden_size / num_heads
  EXPECT_EQ(gguf_architecture(config, "", "DIR").name, "gemma2");
  config.attention_scale_dim = 0;  // head_dim
  const std::string text = error_of([&] { gguf_architecture(config, "", "DIR"); });
  EXPECT_NE(text.find("model.attention_scale_dim = 16 instead of 8."), std::string::npos) << text;
}

TEST(Gguf, ModelsWithLayerNormAreRefusedWithTheOptionsThatDiffer) {
  EXPECT_EQ(gguf_architecture(like_pythia(), "", "DIR").name, "gptneox");
  const auto has = [](const std::function<void(model::ModelConfig&)>& change,
                      const std::string& part) {
    model::ModelConfig config = like_pythia();
    change(config);
    const std::string text = error_of([&] { gguf_architecture(config, "", "DIR"); });
    EXPECT_NE(text.find(cat("computes no model with ", part, ". The")), std::string::npos) << text;
  };
  has([](auto& config) { config.activation = "relu2"; }, "model.activation = relu2");
  has([](auto& config) { config.mlp_bias = false; }, "model.mlp_bias = false");
  has([](auto& config) { config.tie_embeddings = true; }, "model.tie_embeddings = true");
  has([](auto& config) { config.head_dim = 16; },
      "model.head_dim = 16 instead of model.hidden_size / model.num_heads");
}

TEST(Gguf, AnArchitectureWithoutWindowsHasTheWindowAsContextLength) {
  model::ModelConfig config = small(false, true);
  config.max_seq_len = 64;
  config.sliding_window = 16;
  const GgufArchitecture& llama = gguf_architecture(config, "", "DIR");
  EXPECT_EQ(llama.name, "llama");
  EXPECT_EQ(gguf_context_length(config, llama), 16);
  ASSERT_EQ(gguf_notes(config, llama).size(), 1U);
  EXPECT_NE(gguf_notes(config, llama)[0].find("a context length of 16"), std::string::npos);
  config.sliding_window = 100;
  EXPECT_EQ(gguf_context_length(config, llama), 64);
  EXPECT_TRUE(gguf_notes(config, llama).empty());
  config.full_attention_layers = "1";
  const std::string text = error_of([&] { gguf_architecture(config, "", "DIR"); });
  EXPECT_NE(text.find("model.full_attention_layers = 1."), std::string::npos) << text;
  model::ModelConfig gemma = like_gemma2();
  gemma.max_seq_len = 64;
  const GgufArchitecture& gemma2 = gguf_architecture(gemma, "", "DIR");
  EXPECT_EQ(gguf_context_length(gemma, gemma2), 64);
  EXPECT_TRUE(gguf_notes(gemma, gemma2).empty());
}

TEST(RotaryRows, AHeadBeginsWithItsRotatedElements) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < 16; ++row) rows.push_back(partial_rotary_row(row, 8, 4));
  // Trireme rotates 0 with 4 and 1 with 5; the file rotates 0 with 2 and 1 with 3.
  EXPECT_EQ(rows,
            (std::vector<std::int64_t>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
  for (std::int64_t row = 0; row < 16; ++row) EXPECT_EQ(partial_rotary_row(row, 8, 8), row);
}

TEST(Gguf, PhiHasTheContextLengthOfLongrope) {
  model::ModelConfig config = small(false, true);
  config.max_seq_len = 16;
  config.rope_scaling =
      "longrope,factor=4,original_max_position_embeddings=16,short_factor=1:1:1:1,"
      "long_factor=1:2:3:4";
  const GgufArchitecture& phi = gguf_architecture(config, "", "DIR");
  EXPECT_EQ(phi.name, "phi3");
  EXPECT_EQ(gguf_context_length(config, phi), 64);
}

TEST(Gguf, ATokenizerThatLlamaCppDoesNotHaveIsRefusedByName) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(tokenizer_error(byte_tokenizer(kBytes)), "no error");
  const auto normalized = [](const char* type) {
    return tokenizer_error(
        byte_tokenizer(formatted(R"({}, "normalizer": {{"type": "{}"}})", kBytes, type)));
  };
  EXPECT_EQ(normalized("NFC"), "no error");
  has(normalized("NFKC"), "llama.cpp does not have the normalizer of this tokenizer");
  has(tokenizer_error(byte_tokenizer(kBytes, true)), "for the steps gpt2 with ignore_merges");
  has(tokenizer_error(byte_tokenizer(
          R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})")),
      "for the steps prefix_space + gpt2");
  has(tokenizer_error(byte_tokenizer(cat(
          kBytes,
          R"(, "added_tokens": [{"id": 258, "content": "<x>", "rstrip": true, "special": true}])"))),
      "the added token '<x>' has single_word, lstrip or rstrip");
  GgufValues with_list;
  put_gguf_tokenizer(
      {{"tokenizer.json", byte_tokenizer(kBytes)},
       {"tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "<x>"}]})"}},
      300, "DIR", with_list);
  has(with_list.bytes(), "tokenizer.chat_template");
  has(error_of([] {
        GgufValues values;
        put_gguf_tokenizer({}, 300, "DIR", values);
      }),
      "has no tokenizer.json");
  has(error_of(
          [] {
            GgufValues values;
            put_gguf_tokenizer({{"tokenizer.json", byte_tokenizer(kBytes)}}, 100, "DIR", values);
          },
          ErrorKind::data),
      "the tokenizer has 258 ids, but the embedding has 100 rows");
}

TEST(Gguf, ScoresOfSentencePieceTokensHaveTheOrderOfTheirMerges) {
  GgufValues values;

  put_gguf_tokenizer({{"tokenizer.json",
                       piece_tokenizer({"ab", "bc", "abc"}, R"(["b c", "a b", "ab c", "a bc"])")}},
                     265, "DIR", values);

  const std::string key = "tokenizer.ggml.scores";
  const std::size_t at = values.bytes().find(key);
  ASSERT_NE(at, std::string::npos);
  std::vector<float> scores(265);
  std::memcpy(scores.data(), values.bytes().data() + at + key.size() + 16, scores.size() * 4);
  EXPECT_EQ(scores[261], -1.0F);  // ab
  EXPECT_EQ(scores[262], 0.0F);   // bc
  EXPECT_EQ(scores[263], -2.0F);  // abc
}

TEST(Gguf, ASentencePieceTokenizerThatScoresCannotExpressIsRefused) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::vector<std::string> tokens{"ab", "bc", "abc"};
  has(tokenizer_error(piece_tokenizer(tokens, R"(["b c", "a b", "ab c"])")),
      "would merge 'a' and 'bc'");
  has(tokenizer_error(piece_tokenizer(tokens, R"(["b c", "a bc", "a b", "ab c"])")),
      "the merges of the token 'abc' do not have adjacent ranks");
  has(tokenizer_error(piece_tokenizer({}, "[]", R"(, "ignore_merges": true)")),
      "with ignore_merges");
  has(tokenizer_error(
          R"({"version": "1.0", "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1]]}, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true}, "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true}})"),
      "this form of Unigram tokenizers");
  has(tokenizer_error(piece_tokenizer({}, "[]", "", "Metaspace")),
      "llama.cpp does not have the pre-tokenizer");
  // A run of one character that grows from its left end needs only the merges with one character.
  EXPECT_EQ(tokenizer_error(piece_tokenizer(
                {"aa", "aaa", "aaaa"}, R"(["aaa a", "aa aa", "aa a", "a aaa", "a aa", "a a"])")),
            "no error");
  has(tokenizer_error(piece_tokenizer({"aa", "aaa", "aaaa"},
                                      R"(["a a", "aaa a", "aa a", "aa aa", "a aaa", "a aa"])")),
      "the merges of the token 'aaa");
}

TEST(Gguf, TheCommandTakesTypesOfItsFormatOnly) {
  const auto refusal = [](const std::string& format, const std::string& dtype) {
    return error_of([&] {
      export_command_alone({.checkpoint = "x", .output = "y", .dtype = dtype, .format = format});
    });
  };
  EXPECT_EQ(refusal("hf", "q8_0"), "--dtype q8_0, must be one of f32, bf16, f16 for --format hf");
  EXPECT_EQ(refusal("gguf", "q4_0"),
            "--dtype q4_0, must be one of f32, f16, bf16, q8_0 for --format gguf");
}

}  // namespace
}  // namespace trireme::checkpoint
