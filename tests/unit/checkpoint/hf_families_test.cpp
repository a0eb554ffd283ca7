/// Tests the table of model families: every family reads what it writes, refuses what it does not
/// support, and names tensors that do not fit. families.py compares the families with transformers.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "checkpoint/format/model_head.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/family_tensors.hpp"
#include "checkpoint/hf/hf_family.hpp"
#include "unit/checkpoint/hf_models.hpp"
#include "unit/checkpoint/one_rank.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

/// Returns a small model that fits the family.
model::ModelConfig fitting(std::string_view model_type) {
  model::ModelConfig config = small(model_type.starts_with("qwen3"), false);
  config.qk_norm = model_type.starts_with("qwen3") || model_type == "gemma3_text";
  config.qkv_bias = model_type == "qwen2";
  config.mlp_bias = model_type == "llama" || model_type == "smollm3";
  if (model_type == "qwen3_moe" || model_type == "mixtral") {
    config.moe.num_experts = 4;
    config.moe.moe_intermediate_size = config.intermediate_size;
    config.moe.router_aux_loss = "micro_batch";
  }
  if (model_type == "mistral" || model_type == "phi3") config.sliding_window = 64;
  if (model_type == "phi3") config.rotary_dim = 4;
  if (model_type == "smollm3") config.no_rope_layers = "1";
  if (model_type == "olmo2") {
    config.qk_norm = config.qk_norm_whole = config.post_norms = true;
    config.pre_norms = false;
  }
  if (model_type.starts_with("gpt")) {
    config.num_kv_heads = config.num_heads;
    config.norm = "layer";
    config.mlp = "plain";
    config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
    config.activation = model_type == "gpt2" ? "gelu_tanh" : "gelu";
    if (model_type == "gpt2")
      config.position = "learned";
    else
      config.parallel_residual = true;
    if (model_type == "gpt_neox") config.rotary_dim = 4;
  }
  if (model_type == "starcoder2" || model_type == "stablelm") config.norm = "layer";
  if (model_type == "starcoder2") {
    config.mlp = "plain";
    config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
    config.sliding_window = 64;
  }
  if (model_type == "stablelm") {
    config.qkv_bias = true;
    config.rotary_dim = 4;
  }
  if (model_type.starts_with("gemma")) {
    config.embedding_scale = std::sqrt(32.0);
    config.activation = "gelu_tanh";
  }
  if (model_type == "gemma2" || model_type == "gemma3_text") {
    config.post_norms = true;
    config.sliding_window = 64;
    config.full_attention_layers = "1";
    if (model_type == "gemma3_text") config.local_rope_theta = 100;
    if (model_type == "gemma2") config.logit_softcap = 3;
    config.attention_scale_dim = 9;
  }
  return config;
}

TEST(HuggingFaceFamilies, EachExportsAndImportsItsOwn) {
  for (const Family* family : hf_families()) {
    const std::string type(family->model_type);
    SCOPED_TRACE(type);
    const TempDirectory folder;
    save_model(folder / "run", fitting(type), 2, {{kHfFamilyValue, type}});
    export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
    EXPECT_EQ(read_json(folder / "hf/config.json").at("model_type"), type);

    import_command({.hf = folder / "hf", .output = folder / "back"});
    export_command_alone({.checkpoint = folder / "back", .output = folder / "again"});

    if (family->norm_offset == 0) {
      EXPECT_EQ(checkpoint_hash_alone(folder / "back"), checkpoint_hash_alone(folder / "run"));
      EXPECT_EQ(read_file(folder / "hf/model.safetensors"),
                read_file(folder / "again/model.safetensors"));
    }
    EXPECT_EQ(read_file(folder / "hf/config.json"), read_file(folder / "again/config.json"));
  }
}

TEST(HuggingFaceFamilies, EachRefusesKeysOfOthersByName) {
  const std::vector<std::pair<std::string, Json>> keys{
      {"attention_bias", true},          {"mlp_bias", true},
      {"use_sliding_window", true},      {"sliding_window", 8},
      {"no_rope_layers", {0, 1}},        {"num_local_experts", 4},
      {"partial_rotary_factor", 0.5},    {"final_logit_softcapping", 30.0},
      {"attn_logit_softcapping", 50.0},  {"quantization_config", {{"bits", 4}}},
      {"router_jitter_noise", 0.1},      {"use_bidirectional_attention", true},
      {"layer_types", {"chunked", "x"}}, {"resid_pdrop", 0.1}};
  for (const Family* family : hf_families()) {
    const model::ModelConfig model = fitting(family->model_type);
    const Json good = parse_json(hf_config_text(model, DType::f32, {}, family->model_type), "c");
    for (const auto& [key, value] : keys) {
      const bool reads =
          std::ranges::find(family->keys, key) != family->keys.end() ||
          (key == "partial_rotary_factor" && (family->partial_rotary || family->key(key) != key));
      if (reads && key != "layer_types") continue;
      Json config = good;
      config[key] = value;
      const std::string text =
          message_of(ErrorKind::data, [&] { (void)model_from_hf(config, "config.json"); });
      EXPECT_NE(text.find(key), std::string::npos) << family->model_type << " " << key << text;
    }
    Json usual = good;
    usual["layer_types"] = {"full_attention", "full_attention"};
    if (model.full_attention_layers.empty()) (void)model_from_hf(usual, "config.json");
  }
}

TEST(HuggingFaceFamilies, GemmaReadsTheActivationOfItsFirstFiles) {
  Json config = parse_json(hf_config_text(fitting("gemma"), DType::f32, {}, "gemma"), "c");
  config["hidden_act"] = "gelu";
  config["hidden_activation"] = nullptr;
  EXPECT_EQ(model_from_hf(config, "c").activation, "gelu_tanh");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  EXPECT_EQ(hf_unknown_keys(config, "c"), std::vector<std::string>{});
  config["hidden_activation"] = "gelu";
  const std::string text = message_of(ErrorKind::data, [&] { (void)model_from_hf(config, "c"); });
  EXPECT_NE(text.find("hidden_activation = \"gelu\""), std::string::npos) << text;
}

TEST(HuggingFaceFamilies, StarCoder2AndStableLmRefuseOtherSettings) {
  const std::vector<std::tuple<std::string, std::string, Json>> wrong{
      {"starcoder2", "embedding_dropout", 0.2},
      {"starcoder2", "head_dim", 12},
      {"starcoder2", "use_qkv_bias", true},
      {"stablelm", "use_parallel_residual", true},
      {"stablelm", "qk_layernorm", true},
      {"stablelm", "hidden_dropout", 0.1},
      {"stablelm", "use_bias", true}};
  for (const auto& [type, key, value] : wrong) {
    Json config = parse_json(hf_config_text(fitting(type), DType::f32, {}, type), "c");
    config[key] = value;
    const std::string text = message_of(ErrorKind::data, [&] { (void)model_from_hf(config, "c"); });
    EXPECT_NE(text.find(key), std::string::npos) << type << " " << key << text;
  }
}

TEST(HuggingFaceFamilies, Gpt2ReadsPublishedFilesAndRefusesOtherSettings) {
  const Json published{{"model_type", "gpt2"}, {"activation_function", "gelu_new"},
                       {"n_ctx", 1024},        {"n_embd", 768},
                       {"n_head", 12},         {"n_layer", 12},
                       {"n_positions", 1024},  {"summary_first_dropout", 0.1},
                       {"vocab_size", 50257}};
  const model::ModelConfig model = model_from_hf(published, "c");
  EXPECT_EQ(model.num_parameters(), 124439808) << "the published number";
  EXPECT_EQ(model.dropout, 0.1);
  EXPECT_EQ(model.attention_dropout, 0.1);
  EXPECT_EQ(hf_unknown_keys(published, "c"), std::vector<std::string>{});
  const std::vector<std::pair<std::string, Json>> wrong{{"scale_attn_by_inverse_layer_idx", true},
                                                        {"add_cross_attention", true},
                                                        {"embd_pdrop", 0.2},
                                                        {"num_key_value_heads", 4},
                                                        {"activation_function", "relu"},
                                                        {"n_layer", 0}};
  for (const auto& [key, value] : wrong) {
    Json config = published;
    config[key] = value;
    const std::string text = message_of(ErrorKind::data, [&] { (void)model_from_hf(config, "c"); });
    EXPECT_NE(text.find(key), std::string::npos) << text;
  }
  Json unscaled = published;
  unscaled["scale_attn_weights"] = false;
  EXPECT_EQ(model_from_hf(unscaled, "c").attention_setup(0).scale, 1.0);
}

TEST(HuggingFaceFamilies, PythiaHasTheShareOfItsRotaryEmbedding) {
  Json pythia{{"model_type", "gpt_neox"}, {"hidden_size", 512},     {"intermediate_size", 2048},
              {"num_attention_heads", 8}, {"num_hidden_layers", 6}, {"vocab_size", 50304},
              {"rotary_emb_base", 20000}};
  model::ModelConfig model = model_from_hf(pythia, "c");
  EXPECT_EQ(model.num_parameters(), 70426624) << "the published number of Pythia 70M";
  EXPECT_EQ(model.rotary_dim, 16);
  EXPECT_EQ(model.rope_theta, 20000);
  EXPECT_TRUE(model.parallel_residual);
  pythia["rotary_pct"] = 1.0;
  pythia["use_parallel_residual"] = false;
  model = model_from_hf(pythia, "c");
  EXPECT_EQ(model.rotary_dim, 0);
  EXPECT_FALSE(model.parallel_residual);
  EXPECT_EQ(hf_unknown_keys(pythia, "c"), std::vector<std::string>{});
}

/// Published files of GPT-2 have no prefix, and the causal masks of each layer.
TEST(HuggingFaceFamilies, Gpt2TensorsMayHaveNoPrefixAndMasks) {
  const model::ModelConfig model = fitting("gpt2");
  WeightSource named;
  for (const auto& [name, shape] :
       std::vector<NamedShape>{{"wte.weight", {model.vocab_size, model.hidden_size}},
                               {"h.0.attn.bias", {1, 1, model.max_seq_len, model.max_seq_len}},
                               {"h.1.attn.bias", {1, 1, model.max_seq_len, model.max_seq_len}}})
    named[name] = {DType::f32, shape, [](std::span<std::byte>) {}};
  const auto message =
      message_of(ErrorKind::data, [&] { (void)from_family(gpt2_family(), model, named, "model"); });
  EXPECT_NE(message.find("missing: transformer.h.0.attn.c_attn.weight"), std::string::npos)
      << message;
  EXPECT_EQ(message.find("wte"), std::string::npos) << message;
}

TEST(HuggingFaceFamilies, AModelThatNoFamilyCanExpressIsRefused) {
  model::ModelConfig config = small(false, false);
  config.embedding_scale = 3;
  EXPECT_EQ(
      hf_family_problem(config),
      "model.embedding_scale = 3 (the closest, llama, cannot have model.embedding_scale = 3)");
  config.embedding_scale = 1;
  EXPECT_EQ(hf_family_problem(config), "");
  EXPECT_EQ(hf_family(config).model_type, "llama");
  config.qkv_bias = true;
  EXPECT_EQ(hf_family(config).model_type, "qwen2");
  EXPECT_EQ(hf_family(config, "mistral").model_type, "qwen2") << "Mistral has no biases";
}

TEST(HuggingFaceFamilies, EveryOptionOfTheResidualStreamIsNamed) {
  struct Option {
    const char* name;
    void (*change)(model::ModelConfig&);
  };

  const Option options[] = {
      {"model.norm_gain = false", [](model::ModelConfig& c) { c.norm_gain = false; }},
      {"model.embed_norm = true", [](model::ModelConfig& c) { c.embed_norm = true; }},
      {"model.qk_scale = 1.2", [](model::ModelConfig& c) { c.qk_scale = 1.2; }},
      {"model.residual_scalars = true", [](model::ModelConfig& c) { c.residual_scalars = true; }},
      {"model.skips = true", [](model::ModelConfig& c) { c.skips = true; }},
      {"model.backout = true", [](model::ModelConfig& c) { c.backout = true; }},
      {"model.smear = true", [](model::ModelConfig& c) { c.smear = true; }},
      {"model.value_embeddings = 1", [](model::ModelConfig& c) { c.value_embeddings = "1"; }},
      {"model.value_residual = true", [](model::ModelConfig& c) { c.value_residual = true; }},
      {"model.short_window = 8 and model.window_pattern = SL", [](model::ModelConfig& c) {
         c.window_pattern = "SL";
         c.short_window = 8;
       }}};
  for (const Option& option : options) {
    model::ModelConfig config = small(false, false);
    option.change(config);
    EXPECT_EQ(hf_family_problem(config).find(option.name), 0U) << hf_family_problem(config);
  }
  model::ModelConfig config = small(false, false);
  config.init = "uniform";
  config.zero_projections = true;
  EXPECT_EQ(hf_family_problem(config), "") << "initial values do not change the computation";
}

TEST(HuggingFaceFamilies, AnExportNamesAllOptionsThatBlockItTogether) {
  model::ModelConfig config = small(true, false);
  config.mlp_bias = true;
  EXPECT_EQ(hf_family_problem(config).find("model.qk_norm = true together with model.mlp_bias = "
                                           "true (the closest, qwen3, cannot have"),
            0U)
      << hf_family_problem(config);

  config.post_norms = true;
  config.embedding_scale = std::sqrt(32.0);
  EXPECT_EQ(hf_family_problem(config),
            "model.qk_norm = true together with model.mlp_bias = true (the closest, gemma3_text, "
            "cannot have model.mlp_bias = true)");
}

TEST(HuggingFaceFamilies, KeysThatAreNotReadAreNamed) {
  for (const Family* family : hf_families()) {
    const std::string type(family->model_type);
    Json config = parse_json(hf_config_text(fitting(type), DType::f32, {}, type), "c");
    EXPECT_EQ(hf_unknown_keys(config, "c"), std::vector<std::string>{}) << family->model_type;
    config["surprise"] = 2;
    config["absent"] = nullptr;
    config["key_scale"] = 1.0;
    EXPECT_EQ(hf_unknown_keys(config, "c"), (std::vector<std::string>{"surprise", "key_scale"}))
        << family->model_type;
  }
}

TEST(HuggingFaceFamilies, FusedTensorsThatDoNotFitAreNamed) {
  const TempDirectory folder;
  save_model(folder / "run", fitting("phi3"), 1, {{kHfFamilyValue, "phi3"}});
  export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
  Json config = read_json(folder / "hf/config.json");
  config["num_key_value_heads"] = 4;
  overwrite(folder / "hf/config.json", config.dump());
  const std::string shape = message_of(
      ErrorKind::data, [&] { import_command({.hf = folder / "hf", .output = folder / "back"}); });
  EXPECT_NE(shape.find("model.layers.0.self_attn.qkv_proj.weight: shape [64, 32] of f32, the "
                       "model's is [96, 32]"),
            std::string::npos)
      << shape;
  config["num_key_value_heads"] = 2;
  config["num_hidden_layers"] = 3;
  overwrite(folder / "hf/config.json", config.dump());
  const std::string missing = message_of(
      ErrorKind::data, [&] { import_command({.hf = folder / "hf", .output = folder / "back"}); });
  EXPECT_NE(missing.find("missing: model.layers.2.mlp.gate_up_proj.weight"), std::string::npos)
      << missing;
}

/// Adapters of q_proj have no place in a model of transformers with fused linears.
TEST(HuggingFaceFamilies, AdaptersOfFusedLinearsAreRefused) {
  EXPECT_NE(hf_adapter_problem(find_family("phi3"), small(false, false)), "");
  EXPECT_NE(hf_adapter_problem(nullptr, fitting("phi3")), "") << "rows in another order";
  EXPECT_EQ(hf_adapter_problem(find_family("gemma3_text"), fitting("gemma3_text")), "");
  EXPECT_EQ(hf_adapter_problem(nullptr, small(false, false)), "");
}

TEST(HuggingFaceFamilies, ARewardModelIsNoLanguageModelToExport) {
  const TempDirectory folder;
  save_model(folder / "run", fitting("llama"), 1,
             {{checkpoint::kHeadValue, std::string(checkpoint::kRewardModelHead)}});
  try {
    export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string_view(error.what()).find("is a reward model"), std::string_view::npos)
        << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "hf"));
  EXPECT_TRUE(checkpoint::is_model_value(checkpoint::kHeadValue)) << "copies of weights keep it";
}

}  // namespace
}  // namespace trireme::checkpoint
