#include "checkpoint/exchange/lora.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/exchange/hf_tensors.hpp"
#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/peft/peft.hpp"
#include "core/files/json.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

constexpr std::int64_t kRank = 3;

model::ModelConfig small_model() {
  model::ModelConfig config = model::model_preset("minimind-2-small");
  config.hidden_size = 32;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.intermediate_size = 48;
  model::resolve(config, 50);
  return config;
}

StateDict state_of(const model::ModelConfig& model, const std::vector<NamedShape>& tensors,
                   std::vector<std::vector<float>>& storage, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.5F);
  StateDict state;
  put_model_values(model, state.values);
  storage.reserve(tensors.size());
  for (const NamedShape& tensor : tensors) {
    storage.emplace_back(static_cast<std::size_t>(parallel::Slice::whole(tensor.shape).count()));
    for (float& value : storage.back()) value = normal(random);
    state.tensors.push_back({"param/" + tensor.name, DType::f32, tensor.shape,
                             parallel::Slice::whole(tensor.shape),
                             std::as_writable_bytes(std::span(storage.back())), true});
  }
  return state;
}

/// Saves a LoRA run and its base.
void save_run(const fs::path& run, const model::ModelConfig& model, const model::LoraConfig& lora) {
  comm::SelfCommunicator alone;
  std::vector<std::vector<float>> base;
  save_checkpoint(run / "base", 0, state_of(model, model_tensors(model), base, 1), alone, {});
  std::vector<std::vector<float>> adapters;
  StateDict state =
      state_of(model, adapter_tensors(lora_adapters(lora, model), lora.rank), adapters, 2);
  put_lora_values(lora, state.values);
  save_checkpoint(run / "checkpoints", 7, state, alone, {});
}

/// Saves a LoRA run with adapters of q_proj and down_proj in both layers, and its base.
void save_run(const fs::path& run, bool rslora) {
  save_run(
      run, small_model(),
      {.rank = kRank, .alpha = 5, .dropout = 0, .targets = "q_proj,down_proj", .rslora = rslora});
}

std::vector<float> values_in(const fs::path& file, const std::string& name) {
  const SafetensorsFile weights = SafetensorsFile::open(file);
  const SafetensorsEntry& entry = weights.entries().at(name);
  std::vector<float> values((entry.end - entry.begin) / sizeof(float));
  weights.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<float> values_in(const Checkpoint& checkpoint, const std::string& name) {
  const std::vector<std::byte> bytes = checkpoint.read_logical(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Lora, ExportAddsTheAdaptersInDoubleAndRoundsOnce) {
  for (const bool rslora : {false, true}) {
    const TempDirectory folder;
    save_run(folder / "run", rslora);
    export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});

    const Checkpoint base = Checkpoint::open(folder / "run/base/step-000000000");
    const Checkpoint mine = Checkpoint::open(folder / "run/checkpoints/step-000000007");
    const std::string module = "model.layers.1.self_attn.q_proj";
    const auto w = values_in(base, "param/" + module + ".weight");
    const auto a = values_in(mine, "param/" + module + ".lora_A.weight");
    const auto b = values_in(mine, "param/" + module + ".lora_B.weight");
    const double scale = 5 / (rslora ? std::sqrt(3.0) : 3.0);
    const auto merged = values_in(folder / "hf/model.safetensors", module + ".weight");
    ASSERT_EQ(merged.size(), w.size());
    for (std::size_t o = 0; o < 32; ++o) {
      for (std::size_t i = 0; i < 32; ++i) {
        double sum = 0;
        for (std::size_t r = 0; r < 3; ++r)
          sum += static_cast<double>(b[o * 3 + r]) * static_cast<double>(a[r * 32 + i]);
        EXPECT_FLOAT_EQ(merged[o * 32 + i],
                        static_cast<float>(static_cast<double>(w[o * 32 + i]) + scale * sum));
      }
    }
    const std::string untouched = "model.layers.1.self_attn.k_proj.weight";
    EXPECT_EQ(values_in(folder / "hf/model.safetensors", untouched),
              values_in(base, "param/" + untouched));
  }
}

TEST(Lora, PeftDirectoriesAreExportedAndImported) {
  const TempDirectory folder;
  save_run(folder / "run", true);
  export_command_alone({.checkpoint = folder / "run", .output = folder / "peft", .adapter = true});
  const Json config = read_json(folder / "peft/adapter_config.json");
  EXPECT_EQ(config.at("r"), 3);
  EXPECT_EQ(config.at("lora_alpha"), 5);
  EXPECT_EQ(config.at("use_rslora"), true);
  EXPECT_EQ(config.at("target_modules"), Json({"q_proj", "down_proj"}));
  const auto names = SafetensorsFile::open(folder / "peft/adapter_model.safetensors").entries();
  EXPECT_EQ(names.size(), 8U);
  EXPECT_TRUE(names.contains("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));

  import_command({.peft = folder / "peft", .base = folder / "run/base", .output = folder / "back"});

  EXPECT_EQ(checkpoint_hash_alone(folder / "back"), checkpoint_hash_alone(folder / "run"));
  EXPECT_EQ(checkpoint_hash_alone(folder / "back/base"),
            checkpoint_hash_alone(folder / "run/base"));
  const Checkpoint back = Checkpoint::open(folder / "back/checkpoints/step-000000000");
  const auto& values = back.manifest().values;
  EXPECT_EQ(values.at("lora.targets"), "q_proj,down_proj");
  EXPECT_EQ(values.at("lora.rslora"), "true");
  fs::remove_all(folder / "run");  // an imported model has its own base
  export_command_alone({.checkpoint = folder / "back", .output = folder / "hf"});
  EXPECT_TRUE(fs::exists(folder / "hf/model.safetensors"));
}

/// Returns a model that only StarCoder2 can express, or only GPT-2.
model::ModelConfig plain_model(bool learned_positions) {
  model::ModelConfig config = learned_positions ? model::model_preset("gpt2-124m") : small_model();
  config.hidden_size = 32;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = learned_positions ? 4 : 2;
  config.head_dim = 8;
  config.intermediate_size = 64;
  config.norm = "layer";
  config.mlp = "plain";
  config.activation = "gelu_tanh";
  config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
  model::resolve(config, 50);
  return config;
}

TEST(Lora, PeftDirectoriesHaveTheNamesOfTheFamily) {
  const TempDirectory folder;
  save_run(folder / "run", plain_model(false),
           {.rank = kRank, .alpha = 5, .dropout = 0, .targets = "all-linear", .rslora = false});
  export_command_alone({.checkpoint = folder / "run", .output = folder / "peft", .adapter = true});

  EXPECT_EQ(read_json(folder / "peft/adapter_config.json").at("target_modules"),
            Json({"q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj"}));
  const auto names = SafetensorsFile::open(folder / "peft/adapter_model.safetensors").entries();
  EXPECT_TRUE(names.contains("base_model.model.model.layers.1.mlp.c_fc.lora_A.weight"));
  EXPECT_TRUE(names.contains("base_model.model.model.layers.1.mlp.c_proj.lora_B.weight"));
  import_command({.peft = folder / "peft", .base = folder / "run/base", .output = folder / "back"});
  EXPECT_EQ(checkpoint_hash_alone(folder / "back"), checkpoint_hash_alone(folder / "run"));
}

TEST(Lora, PeftDirectoriesOfAModelWithFusedLinearsAreRefused) {
  const TempDirectory folder;
  save_run(folder / "run", plain_model(true),
           {.rank = kRank, .alpha = 5, .dropout = 0, .targets = "all-linear", .rslora = false});
  const std::string text = message_of(ErrorKind::usage, [&] {
    export_command_alone({.checkpoint = folder / "run", .output = folder / "x", .adapter = true});
  });
  EXPECT_NE(text.find("fused linears"), std::string::npos) << text;
}

TEST(Lora, UnsupportedAdaptersAreRefusedByName) {
  const TempDirectory folder;
  save_run(folder / "run", false);
  export_command_alone({.checkpoint = folder / "run", .output = folder / "peft", .adapter = true});
  const fs::path config_path = folder / "peft/adapter_config.json";
  const Json good = read_json(config_path);
  const auto refused = [&](const Json& config) {
    overwrite(config_path, config.dump());
    return message_of(ErrorKind::data, [&] {
      import_command(
          {.peft = folder / "peft", .base = folder / "run/base", .output = folder / "x"});
    });
  };
  const std::vector<std::pair<std::string, Json>> cases{{"peft_type", "IA3"},
                                                        {"bias", "all"},
                                                        {"use_dora", true},
                                                        {"modules_to_save", {"lm_head"}},
                                                        {"rank_pattern", {{"q_proj", 4}}},
                                                        {"r", 0},
                                                        {"lora_alpha", 0},
                                                        {"lora_alpha", "much"}};
  for (const auto& [key, value] : cases) {
    Json config = good;
    config[key] = value;
    const std::string text = refused(config);
    EXPECT_NE(text.find(key), std::string::npos) << key << ": " << text;
  }
  Json config = good;
  config["r"] = 4;
  EXPECT_NE(refused(config).find("q_proj.lora_A.weight: wrong shape"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "x"));
}

TEST(Lora, ACheckpointOfAdaptersNeedsItsBaseAndOthersHaveNone) {
  const TempDirectory folder;
  save_run(folder / "run", false);
  const std::string whole = message_of(ErrorKind::usage, [&] {
    export_command_alone(
        {.checkpoint = folder / "run/base", .output = folder / "x", .adapter = true});
  });
  EXPECT_NE(whole.find("contains no adapters"), std::string::npos) << whole;
  fs::rename(folder / "run/base", folder / "elsewhere");
  message_of(ErrorKind::data,
             [&] { export_command_alone({.checkpoint = folder / "run", .output = folder / "x"}); });
  export_command_alone(
      {.checkpoint = folder / "run", .output = folder / "x", .base = folder / "elsewhere"});
  EXPECT_TRUE(fs::exists(folder / "x/config.json"));
}

}  // namespace
}  // namespace trireme::checkpoint
