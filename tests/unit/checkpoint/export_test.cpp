/// Files that `trireme export` writes beside the weights, and values that a file type cannot hold.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/tokenizer/tokenizer_check.hpp"
#include "core/files/json.hpp"
#include "unit/checkpoint/hf_models.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

/// Saves a model with a tokenizer that ends texts with one token and, in ChatML, turns with another.
void save_chat_model(const fs::path& folder, const std::map<std::string, std::string>& values,
                     const std::string& generation, float weight) {
  StateDict state;
  state.values = values;
  model::ModelConfig config = small(true, true);
  config.vocab_size = 300;
  put_model_values(config, state.values);
  std::vector<std::vector<float>> storage;
  storage.reserve(model_tensors(config).size());
  for (const NamedShape& tensor : model_tensors(config)) {
    const parallel::Slice whole = parallel::Slice::whole(tensor.shape);
    std::vector<float>& numbers =
        storage.emplace_back(static_cast<std::size_t>(whole.count()), weight);
    state.tensors.push_back({"param/" + tensor.name, DType::f32, tensor.shape, whole,
                             std::as_writable_bytes(std::span(numbers)), true});
  }
  state.files["tokenizer.json"] = byte_tokenizer(
      cat(kBytes, R"(, "added_tokens": [{"id": 258, "content": "<|im_start|>", "special": true},)"
                  R"({"id": 259, "content": "<|im_end|>", "special": true},)"
                  R"({"id": 260, "content": "<|endoftext|>", "special": true}])"));
  state.files["tokenizer_config.json"] = R"({"eos_token": "<|endoftext|>"})";
  EXPECT_EQ(tokenizer_problem(state.files, "test"), "");
  if (!generation.empty()) state.files["generation_config.json"] = generation;
  comm::SelfCommunicator alone;
  save_checkpoint(folder, 1, state, alone, {});
}

TEST(Export, AnExportEndsWhereATrainedTurnEnds) {
  const TempDirectory folder;
  const std::map<std::string, std::string> chatml{{kChatTemplateValue, "chatml"}};
  const auto ends_of = [&](const std::string& name,
                           const std::map<std::string, std::string>& values,
                           const std::string& generation) {
    save_chat_model(folder / name, values, generation, 0.5F);
    export_command_alone({.checkpoint = folder / name, .output = folder / (name + "-hf")});
    const Json ends = read_json(folder / (name + "-hf/generation_config.json")).at("eos_token_id");
    EXPECT_EQ(read_json(folder / (name + "-hf/config.json")).at("eos_token_id"), ends);
    return ends;
  };

  EXPECT_EQ(ends_of("texts", {}, ""), 260);
  EXPECT_EQ(ends_of("chats", chatml, ""), Json({260, 259}));
  EXPECT_EQ(ends_of("settings", chatml, R"({"eos_token_id": 260, "temperature": 0.5})"),
            Json({260, 259}));
  EXPECT_EQ(read_json(folder / "settings-hf/generation_config.json").at("temperature"), 0.5);
  export_command_alone(
      {.checkpoint = folder / "chats", .output = folder / "gguf", .format = "gguf"});
  EXPECT_NE(read_file(folder / "gguf/model.gguf").find("tokenizer.ggml.eot_token_id"),
            std::string::npos);
}

TEST(Export, AnExportRefusesWhatItsTypeCannotHold) {
  const TempDirectory folder;
  save_chat_model(folder / "large", {}, "", 1e6F);
  for (const char* format : {"hf", "gguf"}) {
    ExportCommand options{.checkpoint = folder / "large", .output = folder / "out"};
    options.format = format;
    options.dtype = "f16";
    const std::string text = message_of(ErrorKind::data, [&] { export_command_alone(options); });
    EXPECT_NE(text.find("export with --dtype bf16"), std::string::npos) << text;
    EXPECT_FALSE(fs::exists(folder / "out"));
  }
}

}  // namespace
}  // namespace trireme::checkpoint
