#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/hf/hf_export.hpp"
#include "checkpoint/hf/hf_family.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "core/files/directories.hpp"
#include "core/files/json.hpp"
#include "unit/checkpoint/hf_models.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

TEST(HuggingFace, ExportAndImportGiveTheSameTensors) {
  for (const bool qwen : {true, false}) {
    for (const bool tied : {true, false}) {
      const TempDirectory folder;
      const model::ModelConfig config = small(qwen, tied);
      save_model(folder / "run/checkpoints", config, 3);
      export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
      import_command({.hf = folder / "hf", .output = folder / "back"});

      EXPECT_EQ(checkpoint_hash_alone(folder / "back"), checkpoint_hash_alone(folder / "run"));
      const Checkpoint back = verify_checkpoint(folder / "back/checkpoints/step-000000000");
      const model::ModelConfig read = model_from_values(back.manifest().values, "test");
      EXPECT_EQ(read.qk_norm, qwen);
      EXPECT_EQ(read.tie_embeddings, tied);
      EXPECT_EQ(read.rope_theta, 12345.678);
      EXPECT_EQ(read.num_parameters(), config.num_parameters());
      EXPECT_EQ(back.file("tokenizer.json"), read_file(folder / "hf/tokenizer.json"));
      EXPECT_EQ(back.file("chat_template.jinja"), "{{ messages }}");
    }
  }
}

TEST(HuggingFace, ExportedConfigNamesBothGenerationsKeysAndTokenIds) {
  const TempDirectory folder;
  save_model(folder.path(), small(true, true), 1);
  export_command_alone(
      {.checkpoint = folder / "step-000000040", .output = folder / "hf", .dtype = "bf16"});
  const Json config = read_json(folder / "hf/config.json");
  EXPECT_EQ(config.at("architectures").at(0), "Qwen3ForCausalLM");
  EXPECT_EQ(config.at("torch_dtype"), "bfloat16");
  EXPECT_EQ(config.at("dtype"), "bfloat16");
  EXPECT_EQ(config.at("rope_theta"), 12345.678);
  EXPECT_EQ(config.at("rope_parameters").at("rope_theta"), 12345.678);
  EXPECT_EQ(config.at("bos_token_id"), 1);
  EXPECT_EQ(config.at("eos_token_id"), 2);
  EXPECT_TRUE(config.at("pad_token_id").is_null());
  EXPECT_EQ(read_json(folder / "hf/special_tokens_map.json").at("eos_token"), "<|im_end|>");
  EXPECT_EQ(read_json(folder / "hf/generation_config.json").at("eos_token_id"), 2);
  EXPECT_EQ(read_json(folder / "hf/tokenizer_config.json").at("tokenizer_class"),
            "PreTrainedTokenizerFast");
  EXPECT_FALSE(fs::exists(folder / "hf/config.toml"));
  const SafetensorsFile weights = SafetensorsFile::open(folder / "hf/model.safetensors");
  EXPECT_FALSE(weights.entries().contains("lm_head.weight"));
  EXPECT_EQ(weights.entries().at("model.norm.weight").dtype, DType::bf16);
}

TEST(HuggingFace, ActivationsHaveTheNamesOfTransformersBothWays) {
  const std::map<std::string, std::string> names{
      {"silu", "silu"}, {"gelu_tanh", "gelu_pytorch_tanh"}, {"relu2", "relu2"}, {"gelu", "gelu"}};
  for (const auto& [name, hf_name] : names) {
    model::ModelConfig config = small(true, true);
    config.activation = name;

    Json json = parse_json(hf_config_text(config, DType::f32, {}), "config.json");

    EXPECT_EQ(json.at("hidden_act"), hf_name);
    EXPECT_EQ(model_from_hf(json, "test").activation, name);
    json.erase("hidden_act");
    EXPECT_EQ(model_from_hf(json, "test").activation, "silu");

    std::map<std::string, std::string> values;
    put_model_values(config, values);
    EXPECT_EQ(model_from_values(values, "test").activation, name);
    values.erase("model.activation");
    EXPECT_EQ(model_from_values(values, "test").activation, "silu");
  }
}

TEST(HuggingFace, SeveralRanksExportTheDirectoryOfOne) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, false), 3);
  const Checkpoint checkpoint = Checkpoint::open(folder / "run/step-000000040");
  for (const std::uint64_t max_bytes : {std::uint64_t{5'000'000'000}, std::uint64_t{5000}}) {
    const ExportOptions options{.dtype = DType::bf16, .max_file_bytes = max_bytes};
    const fs::path alone = folder.path() / formatted("alone{}", max_bytes);
    export_hf_alone(checkpoint, alone, options);
    for (const int ranks : {2, 3}) {
      const fs::path shared = folder.path() / formatted("by{}-{}", ranks, max_bytes);
      comm::run_ranks(ranks, [&](comm::Communicator& world) {
        trireme::checkpoint::export_hf(checkpoint, shared, world, options);
        message_of(ErrorKind::usage,
                   [&] { trireme::checkpoint::export_hf(checkpoint, shared, world, options); });
      });
      EXPECT_EQ(differing(shared, alone), "") << ranks;
    }
  }
}

TEST(HuggingFace, ExportRefusesAnExistingDirectoryAndForeignParameters) {
  const TempDirectory folder;
  save_model(folder / "a", small(true, true), 1);
  fs::create_directory(folder / "hf");
  message_of(ErrorKind::usage,
             [&] { export_command_alone({.checkpoint = folder / "a", .output = folder / "hf"}); });
  message_of(ErrorKind::usage, [&] {
    export_command_alone({.checkpoint = folder / "a", .output = folder / "x", .dtype = "i8"});
  });
  save_layout(folder / "b", 1, make_logicals(1), 1, 0);  // without model.* values
  message_of(ErrorKind::data,
             [&] { export_command_alone({.checkpoint = folder / "b", .output = folder / "x"}); });
  EXPECT_FALSE(fs::exists(folder / "x"));
  EXPECT_FALSE(fs::exists(folder / ".tmp-x"));
}

TEST(HuggingFace, SplitAndHalfPrecisionModelsImport) {
  const TempDirectory folder;
  save_model(folder / "run", small(false, false), 2);
  export_hf_alone(Checkpoint::open(folder / "run/step-000000040"), folder / "hf",
                  {.dtype = DType::f16, .max_file_bytes = 5000});
  EXPECT_TRUE(fs::exists(folder / "hf/model.safetensors.index.json"));
  import_hf(folder / "hf", folder / "back");
  const Checkpoint back = verify_checkpoint(folder / "back/step-000000000");
  EXPECT_EQ(back.manifest().tensors.at("param/lm_head.weight").dtype, DType::f32);
  message_of(ErrorKind::usage, [&] { import_hf(folder / "hf", folder / "back"); });
}

/// Weights that differ are not tied, like in transformers.
TEST(HuggingFace, AnOutputMatrixOfItsOwnIsKeptWhateverTheConfigSays) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, false), 1);
  export_hf_alone(Checkpoint::open(folder / "run/step-000000040"), folder / "hf");
  Json config = read_json(folder / "hf/config.json");
  config["tie_word_embeddings"] = true;
  overwrite(folder / "hf/config.json", config.dump());

  import_hf(folder / "hf", folder / "back");

  const Checkpoint back = verify_checkpoint(folder / "back/step-000000000");
  EXPECT_TRUE(back.manifest().tensors.contains("param/lm_head.weight"));
  EXPECT_FALSE(model_from_values(back.manifest().values, "back").tie_embeddings);
}

TEST(HuggingFace, WeightsThatAreNotFiniteAreRefused) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, true), 1);
  export_hf_alone(Checkpoint::open(folder / "run/step-000000040"), folder / "hf");
  std::string bytes = read_file(folder / "hf/model.safetensors");
  bytes.replace(bytes.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));  // NaN
  overwrite(folder / "hf/model.safetensors", bytes);

  const std::string text =
      message_of(ErrorKind::data, [&] { import_hf(folder / "hf", folder / "back"); });
  EXPECT_NE(text.find("not finite"), std::string::npos) << text;
  EXPECT_FALSE(fs::exists(folder / "back"));
}

/// The embedding of small() has 50 rows.
TEST(HuggingFace, ATokenizerWithMoreIdsThanTheEmbeddingHasRowsIsRefused) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, true), 1);
  export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
  const auto import = [&](const std::string& name) {
    import_command({.hf = folder / "hf", .output = folder / name});
  };
  const auto refused = [&](const char* name, const std::string& content) {
    const std::string before = read_file(folder / "hf" / name);
    overwrite(folder / "hf" / name, content);
    const std::string text = message_of(ErrorKind::data, [&] { import("refused"); });
    EXPECT_NE(text.find("51 ids"), std::string::npos) << text;
    EXPECT_NE(text.find("50 rows"), std::string::npos) << text;
    EXPECT_FALSE(fs::exists(folder / "refused"));
    overwrite(folder / "hf" / name, before);
  };

  refused("tokenizer.json", R"({"model":{"vocab":{"a":0,"b":50}}})");
  refused("tokenizer.json", R"({"model":{"vocab":{"a":0}},"added_tokens":[{"id":50}]})");
  refused("tokenizer_config.json", R"({"added_tokens_decoder":{"50":{"content":"x"}}})");
  Json unigram = {{"model", {{"vocab", Json::array()}}}};
  for (int i = 0; i < 51; ++i) unigram["model"]["vocab"].push_back({"token", -1.0});
  refused("tokenizer.json", unigram.dump());
  overwrite(folder / "hf/tokenizer.json",
            R"({"model":{"vocab":{"a":0,"b":48}},"added_tokens":[{"id":49,"content":"x"}]})");
  import("exact");
  overwrite(folder / "hf/tokenizer.json", R"({"model":{"vocab":{"a":0}}})");  // a padded embedding
  import("padded");
}

TEST(HuggingFace, TwoExportsOrImportsIntoOneDirectoryDoNotMix) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, true), 1);
  const ExportCommand one{.checkpoint = folder / "run", .output = folder / "hf"};
  {
    fs::create_directory(folder / ".tmp-hf");
    const auto other = lock_directory(folder / ".tmp-hf");
    overwrite(folder / ".tmp-hf/model.safetensors", "being written");
    const std::string text = message_of(ErrorKind::usage, [&] { export_command_alone(one); });
    EXPECT_NE(text.find("another export"), std::string::npos) << text;
    EXPECT_EQ(read_file(folder / ".tmp-hf/model.safetensors"), "being written");
  }
  export_command_alone(one);  // the files of a killed export do not matter
  EXPECT_FALSE(fs::exists(folder / ".tmp-hf"));

  const ImportCommand in{.hf = folder / "hf", .output = folder / "back"};
  const auto import = [&] { import_command(in); };
  {
    const RunLock other(folder / "back", {});
    const std::string text = message_of(ErrorKind::usage, import);
    EXPECT_NE(text.find("in use by"), std::string::npos) << text;
  }
  // A process that was killed during its save left this directory.
  fs::create_directories(folder / "back/checkpoints/.tmp-step-000000000");
  import();
  EXPECT_EQ(checkpoint_hash_alone(folder / "back"), checkpoint_hash_alone(folder / "run"));
  message_of(ErrorKind::usage, import);
}

TEST(HuggingFace, UnsupportedFieldsAreRefusedByName) {
  const std::vector<std::pair<std::string, Json>> cases{
      {"mlp_bias", true},
      {"attn_logit_softcapping", 50.0},
      {"final_logit_softcapping", 30.0},
      {"residual_multiplier", 0.5},
      {"no_rope_layers", {1, 0}},
      {"num_experts", 4},
      {"hidden_act", "relu"},
      {"layer_types", {"sliding_attention"}},
      {"num_local_experts", 8},
      {"rope_scaling", {{"type", "proportional"}, {"factor", 16}}},
      {"rope_scaling", {{"type", "linear"}}},
      {"rope_scaling", {{"type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}}},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 16}, {"short_factor", {1}}}},
      {"partial_rotary_factor", 0.5},
      {"rope_parameters", {{"full_attention", {{"rope_theta", 1e5}}}}},
      {"rope_parameters", {{"rope_type", "llama3"}}},
      {"quantization_config", {{"bits", 4}}},
      {"num_key_value_heads", 3},
      {"hidden_size", "wide"},
      {"model_type", "bloom"},
      {"num_hidden_layers", nullptr}};
  for (const auto& [key, value] : cases) {
    Json config = good_config(true);
    config[key] = value;
    const std::string text =
        message_of(ErrorKind::data, [&] { (void)model_from_hf(config, "config.json"); });
    const std::string wanted = key == "num_key_value_heads" ? "num_kv_heads" : key;
    EXPECT_NE(text.find(wanted), std::string::npos) << key << ": " << text;
  }
}

TEST(HuggingFace, ErrorsNameAllAcceptedValues) {
  const auto refusal = [](const Json& config) {
    return message_of(ErrorKind::data, [&] { (void)model_from_hf(config, "config.json"); });
  };
  Json config = good_config(true);
  config["hidden_act"] = "relu";
  EXPECT_NE(refusal(config).find("\"gelu\", \"gelu_new\", \"gelu_fast\", \"swish\""),
            std::string::npos)
      << refusal(config);
  config.erase("model_type");
  EXPECT_EQ(refusal(config), cat("config.json has no model_type; supported: ", hf_family_names()));
}

TEST(HuggingFace, AnImportHasThePresetOfItsShapeOrNone) {
  model::ModelConfig known = model::model_preset("minimind-3");
  model::resolve(known, 50);
  Json config = parse_json(hf_config_text(known, DType::f32, {}), "c");
  EXPECT_EQ(model_from_hf(config, "c").preset, "minimind-3");
  config["num_hidden_layers"] = 9;
  EXPECT_EQ(model_from_hf(config, "c").preset, "");
  EXPECT_EQ(model_from_hf(good_config(false), "c").preset, "");
}

/// transformers reads generation_config.json, and config.json if there is none.
TEST(HuggingFace, SeveralEndTokensComeInAndGoOut) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, true), 1);
  export_hf_alone(Checkpoint::open(folder / "run/step-000000040"), folder / "hf");
  const fs::path generation = folder / "hf/generation_config.json";
  const auto import = [&](const Json& in_config, const char* name) {
    Json config = read_json(folder / "hf/config.json");
    config["eos_token_id"] = in_config;
    overwrite(folder / "hf/config.json", config.dump());
    import_command({.hf = folder / "hf", .output = folder / name});
    export_command_alone(
        {.checkpoint = folder / name, .output = folder.path() / cat(name, "-out")});
    return read_json(folder.path() / cat(name, "-out") / "generation_config.json")
        .at("eos_token_id");
  };

  overwrite(generation, R"({"eos_token_id": [7, 2, 900000], "temperature": 0.5})");
  EXPECT_EQ(import(2, "both"), Json({7, 2, 900000}));
  EXPECT_EQ(read_json(folder / "both-out/config.json").at("eos_token_id"), Json({7, 2, 900000}));
  EXPECT_EQ(read_json(folder / "both-out/generation_config.json").at("temperature"), 0.5);
  fs::remove(generation);
  EXPECT_EQ(import({5, 6}, "config"), Json({5, 6}));
  EXPECT_EQ(read_json(folder / "config-out/config.json").at("eos_token_id"), Json({5, 6, 2}));
  EXPECT_EQ(import(nullptr, "tokenizer"), 2);

  for (const Json& wrong : {Json("2"), Json({1, "2"}), Json(-1), Json(1.5), Json(true)}) {
    const std::string text = message_of(ErrorKind::data, [&] { import(wrong, "wrong"); });
    EXPECT_NE(text.find("config.json: eos_token_id = "), std::string::npos) << text;
    EXPECT_FALSE(fs::exists(folder / "wrong"));
  }
  import(nullptr, "unset");
  overwrite(generation, R"({"eos_token_id": "2"})");
  EXPECT_NE(message_of(ErrorKind::data, [&] { import(2, "wrong"); }).find("generation_config.json"),
            std::string::npos);
}

TEST(HuggingFace, RopeThetaIsReadFromEitherPlace) {
  Json old_keys = good_config(true);
  old_keys.erase("rope_parameters");
  EXPECT_EQ(model_from_hf(old_keys, "c").rope_theta, 12345.678);
  Json new_keys = good_config(true);
  new_keys.erase("rope_theta");
  EXPECT_EQ(model_from_hf(new_keys, "c").rope_theta, 12345.678);
  new_keys.erase("rope_parameters");
  EXPECT_EQ(model_from_hf(new_keys, "c").rope_theta, 10000.0);
}

TEST(HuggingFace, MissingAndExtraTensorsAreListed) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, true), 1);
  export_hf_alone(Checkpoint::open(folder / "run/step-000000040"), folder / "hf");
  Json config = read_json(folder / "hf/config.json");
  config["num_hidden_layers"] = 3;
  config["model_type"] = "llama";
  overwrite(folder / "hf/config.json", config.dump());
  const std::string text =
      message_of(ErrorKind::data, [&] { import_hf(folder / "hf", folder / "back"); });
  EXPECT_NE(text.find("missing: model.layers.2.mlp.up_proj.weight"), std::string::npos) << text;
  EXPECT_NE(text.find("extra: model.layers.0.self_attn.q_norm.weight"), std::string::npos) << text;
}

TEST(HuggingFace, MoreLayersThanTensorsAreRefusedBeforeTheyAreListed) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, true), 1);
  export_hf_alone(Checkpoint::open(folder / "run/step-000000040"), folder / "hf");
  Json config = read_json(folder / "hf/config.json");
  config["num_hidden_layers"] = 2'000'000'000;  // their names alone would fill the memory
  overwrite(folder / "hf/config.json", config.dump());
  const std::string text =
      message_of(ErrorKind::data, [&] { import_hf(folder / "hf", folder / "back"); });
  EXPECT_NE(text.find("num_hidden_layers = 2000000000"), std::string::npos) << text;
}

TEST(ModelValues, ReadBackExactlyAndRefuseWhatTheyDoNotKnow) {
  model::ModelConfig config = small(true, false);
  config.norm_eps = 0.1 + 0.2;
  std::map<std::string, std::string> values;
  put_model_values(config, values);
  const model::ModelConfig read = model_from_values(values, "test");
  EXPECT_EQ(read.norm_eps, 0.1 + 0.2);
  EXPECT_EQ(read.intermediate_size, config.intermediate_size);
  EXPECT_FALSE(read.tie_embeddings);
  values["model.num_tails"] = "4";
  EXPECT_NE(message_of(ErrorKind::data, [&] { (void)model_from_values(values, "x"); })
                .find("model.num_tails"),
            std::string::npos);
  values.erase("model.num_experts");
  values["model.num_layers"] = "2x";
  EXPECT_NE(message_of(ErrorKind::data, [&] { (void)model_from_values(values, "x"); })
                .find("model.num_layers"),
            std::string::npos);
  message_of(ErrorKind::data, [&] { (void)model_from_values({}, "x"); });
}

}  // namespace
}  // namespace trireme::checkpoint
