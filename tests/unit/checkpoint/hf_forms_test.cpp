/// Tests the differences between Hugging Face directories: architectures, rotary frequencies, chat
/// templates, dtypes.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/exchange/safetensors.hpp"
#include "core/process/failpoints.hpp"
#include "text/chat/chat_template.hpp"
#include "unit/checkpoint/hf_models.hpp"
#include "unit/checkpoint/one_rank.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

TEST(HuggingFaceForms, RopeScalingComesInAndGoesOutInBothPlaces) {
  const auto scaling_of = [](const Json& scaling, const char* place) {
    Json config = good_config(false);
    config.erase("rope_parameters");
    config.erase("rope_scaling");
    config[place] = scaling;
    const model::ModelConfig model = model_from_hf(config, "c");
    const Json out = parse_json(hf_config_text(model, DType::f32, {}), "out");
    EXPECT_EQ(model_from_hf(out, "out").rope_scaling, model.rope_scaling);
    Json parameters = out.at("rope_scaling");
    parameters["rope_theta"] = 12345.678;
    EXPECT_EQ(out.at("rope_parameters"), parameters);
    return model.rope_scaling;
  };
  const Json yarn{{"type", "yarn"}, {"factor", 16}, {"original_max_position_embeddings", 2048}};
  Json told = yarn;
  told["attention_factor"] = 1.0;
  told["truncate"] = false;
  Json mscale = yarn;
  mscale["mscale"] = 1.0;
  mscale["mscale_all_dim"] = 0.5;
  const Json llama3{{"rope_type", "llama3"},
                    {"factor", 8.0},
                    {"original_max_position_embeddings", 8192},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0}};

  for (const char* place : {"rope_scaling", "rope_parameters"}) {
    const std::string start = "yarn,factor=16,original_max_position_embeddings=2048,";
    EXPECT_EQ(scaling_of(yarn, place),
              start + "beta_fast=32,beta_slow=1,attention_factor=1.2772588722239782,truncate=true");
    EXPECT_EQ(scaling_of(told, place),
              start + "beta_fast=32,beta_slow=1,attention_factor=1,truncate=false");
    EXPECT_NE(scaling_of(mscale, place).find("attention_factor=1.1217"), std::string::npos)
        << scaling_of(mscale, place);
    EXPECT_EQ(scaling_of(llama3, place),
              "llama3,factor=8,original_max_position_embeddings=8192,low_freq_factor=1,"
              "high_freq_factor=4");
  }
}

TEST(HuggingFaceForms, MistralHasAWindowUnlessItCoversAllPositionsAndGoesOutAsMistral) {
  const TempDirectory folder;
  save_model(folder / "run", small(false, false), 1);
  export_hf_alone(Checkpoint::open(folder / "run/step-000000040"), folder / "hf");
  Json config = read_json(folder / "hf/config.json");
  EXPECT_EQ(config.at("model_type"), "llama");
  config["model_type"] = "mistral";
  config["max_position_embeddings"] = 512;
  const auto import = [&](const std::string& name) {
    overwrite(folder / "hf/config.json", config.dump());
    import_command({.hf = folder / "hf", .output = folder / name});
    export_command_alone({.checkpoint = folder / name, .output = folder / (name + "-out")});
    return read_json(folder / (name + "-out/config.json"));
  };

  for (const Json& window : {Json(nullptr), Json(512), Json(4096)}) {
    config["sliding_window"] = window;
    const Json out = import("covered" + window.dump());
    EXPECT_EQ(out.at("architectures").at(0), "MistralForCausalLM");
    EXPECT_EQ(out.at("model_type"), "mistral");
    EXPECT_TRUE(out.at("sliding_window").is_null());
  }
  EXPECT_EQ(checkpoint_hash_alone(folder / "covered512"), checkpoint_hash_alone(folder / "run"));
  config.erase("sliding_window");  // the default is 4096
  (void)import("unsaid");
  config["max_position_embeddings"] = 4097;
  EXPECT_EQ(import("long").at("sliding_window"), 4096);
  config["sliding_window"] = 100;
  const Json out = import("short");
  EXPECT_EQ(out.at("model_type"), "mistral");
  EXPECT_EQ(out.at("sliding_window"), 100);
}

TEST(HuggingFaceForms, TheRunsChatTemplateIsWrittenInBothPlaces) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, true), 1,
             {{kChatTemplateValue, "minimind-v3"}, {kHfFamilyValue, "mistral"}});
  const std::string shown = checkpoint_inspect(folder / "run");
  EXPECT_NE(shown.find("\n  chat.template = minimind-v3\n"), std::string::npos) << shown;

  export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});

  const std::string jinja = text::chat_template("minimind-v3").jinja();
  EXPECT_EQ(read_file(folder / "hf/chat_template.jinja"), jinja);
  EXPECT_EQ(read_json(folder / "hf/tokenizer_config.json").at("chat_template"), jinja);
  // The architecture follows from the shape.
  EXPECT_EQ(read_json(folder / "hf/config.json").at("model_type"), "qwen3");
  save_model(folder / "newer", small(true, true), 1, {{kChatTemplateValue, "of-tomorrow"}});
  EXPECT_NE(
      message_of(
          ErrorKind::data,
          [&] { export_command_alone({.checkpoint = folder / "newer", .output = folder / "x"}); })
          .find("'of-tomorrow' is unknown"),
      std::string::npos);
}

TEST(HuggingFaceForms, AnExportThatReadsBackOtherwiseIsNotPublished) {
  const TempDirectory folder;
  save_model(folder / "run", small(true, true), 1);
  ::setenv("TRIREME_ALLOW_FAULTS", "1", 1);
  ::setenv("TRIREME_FAULT", "export.read_back:*:3:trigger", 1);
  failpoints_init(0);
  const std::string text = message_of(ErrorKind::resource, [&] {
    export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
  });
  ::unsetenv("TRIREME_FAULT");
  failpoints_init(0);
  EXPECT_NE(text.find("differs from the written data"), std::string::npos) << text;
  EXPECT_FALSE(fs::exists(folder / "hf"));
  EXPECT_FALSE(fs::exists(folder / ".tmp-hf"));
}

/// Tests all finite bit patterns of bf16, and half of those of f32, the type of checkpoints.
TEST(HuggingFaceForms, ImportThenExportKeepsEveryBit) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const TempDirectory folder;
    model::ModelConfig config = small(false, true);
    config.vocab_size = 2048;  // x 32: 65536 elements
    save_model(folder / "run", config, 1);
    export_hf_alone(Checkpoint::open(folder / "run/step-000000040"), folder / "hf",
                    {.dtype = dtype});
    const fs::path file = folder / "hf/model.safetensors";
    std::string bytes = read_file(file);
    const std::size_t size = size_of(dtype);
    const SafetensorsEntry entry =
        SafetensorsFile::open(file).entries().at("model.embed_tokens.weight");
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const std::uint32_t top = (i & 0x7f80U) == 0x7f80U ? i & 0x8000U : i;  // finite values only
      const std::uint32_t bits = size == 2 ? top : (top << 16) | (i * 2654435761U & 0xffffU);
      std::memcpy(bytes.data() + 8 + header + entry.begin + i * size, &bits, size);
    }
    overwrite(file, bytes);

    import_command({.hf = folder / "hf", .output = folder / "back"});
    export_command_alone({.checkpoint = folder / "back",
                          .output = folder / "out",
                          .dtype = std::string(dtype_name(dtype))});

    EXPECT_EQ(read_file(folder / "out/model.safetensors"), bytes) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
