/// Models with experts: stacked in a checkpoint; separate or stacked in a Hugging Face directory.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/hf/hf_export.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "unit/checkpoint/hf_models.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

model::ModelConfig with_experts() {
  model::ModelConfig config = small(/*qwen=*/true, /*tied=*/true);
  config.num_layers = 3;
  config.moe.num_experts = 3;
  config.moe.num_experts_per_tok = 2;
  config.moe.moe_intermediate_size = 5;
  config.moe.first_dense_layers = 1;
  config.moe.norm_topk_prob = false;
  config.moe.router_aux_loss_coef = 0.25;
  return config;
}

/// Exports a model with random weights that three ranks sharded.
void export_model(const TempDirectory& folder, const model::ModelConfig& config) {
  save_model(folder / "run/checkpoints", config, 3);
  export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
}

/// Copies the directory `from` with its experts separate or stacked, and without one tensor.
void rewrite(const fs::path& from, const fs::path& to, bool stacked, const std::string& without) {
  fs::create_directories(to);
  for (const fs::directory_entry& file : fs::directory_iterator(from))
    if (file.path().extension() != ".safetensors")
      fs::copy_file(file.path(), to / file.path().filename());
  const auto tensors = open_safetensors_directory(from);
  std::map<std::string, std::vector<std::byte>> stacks;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const HfTensor& tensor : hf_tensors(with_experts())) {
    if (tensor.name == without) continue;
    const std::string name = stacked ? tensor.parameter : tensor.name;
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(parallel::Slice::whole(tensor.shape).count()) * sizeof(float));
    tensors.at(tensor.name)->read(tensor.name, bytes);
    std::vector<std::byte>& stack = stacks[name];
    const std::size_t begin =
        name == tensor.name ? 0 : static_cast<std::size_t>(tensor.begin) * sizeof(float);
    if (stack.size() < begin + bytes.size()) stack.resize(begin + bytes.size());
    std::ranges::copy(bytes, stack.begin() + static_cast<std::ptrdiff_t>(begin));
    shapes[name] = tensor.shape;
  }
  for (const NamedShape& parameter : model_tensors(with_experts()))
    if (stacked) shapes[parameter.name] = hf_stack_shape(parameter.shape);
  std::vector<SafetensorsSource> sources;
  for (const auto& [name, bytes] : stacks) {
    sources.push_back({name, DType::f32, shapes.at(name), [&bytes](std::span<std::byte> into) {
                         std::ranges::copy(bytes, into.begin());
                       }});
  }
  comm::SelfCommunicator alone;
  write_safetensors_directory(to, sources, alone);
}

TEST(HuggingFaceExperts, ComeBackAsTheyWentOut) {
  const TempDirectory folder;
  export_model(folder, with_experts());
  import_command({.hf = folder / "hf", .output = folder / "back"});

  EXPECT_EQ(checkpoint_hash_alone(folder / "back"), checkpoint_hash_alone(folder / "run"));
  const Checkpoint back = verify_checkpoint(folder / "back/checkpoints/step-000000000");
  model::ModelConfig read = model_from_values(back.manifest().values, "test");
  EXPECT_EQ(read.moe.router_aux_loss, "micro_batch") << "as near as it comes to transformers'";
  read.moe.router_aux_loss = with_experts().moe.router_aux_loss;
  EXPECT_EQ(read.moe, with_experts().moe);
  const auto tensors = open_safetensors_directory(folder / "hf");
  EXPECT_TRUE(tensors.contains("model.layers.2.mlp.experts.1.up_proj.weight"));
  EXPECT_TRUE(tensors.contains("model.layers.0.mlp.up_proj.weight"));
}

TEST(HuggingFaceExperts, MayComeStacked) {
  const TempDirectory folder;
  export_model(folder, with_experts());
  rewrite(folder / "hf", folder / "stacked", /*stacked=*/true, "");
  Json config = parse_json(read_file(folder / "stacked/config.json"), "config.json");
  config["num_local_experts"] = config.at("num_experts");  // the form of transformers 5
  config.erase("num_experts");
  std::ofstream(folder / "stacked/config.json") << config.dump();

  import_command({.hf = folder / "stacked", .output = folder / "back"});

  EXPECT_EQ(checkpoint_hash_alone(folder / "back"), checkpoint_hash_alone(folder / "run"));
}

/// transformers computes one loss for all layers together; this project sums over layers.
TEST(HuggingFaceExperts, TheLossesOfAllLayersAreAsStrongAsTheirOne) {
  const Json config = parse_json(hf_config_text(with_experts(), DType::f32, {}), "test");

  EXPECT_EQ(config.at("router_aux_loss_coef"), 0.5) << "two layers of 0.25";
  EXPECT_EQ(model_from_hf(config, "test").moe.router_aux_loss_coef, 0.25);
}

TEST(HuggingFaceExperts, MoreThanThereAreTensorsAreRefusedAtOnce) {
  const TempDirectory folder;
  export_model(folder, with_experts());
  Json config = parse_json(read_file(folder / "hf/config.json"), "config.json");
  config["num_experts"] = 65536;
  std::ofstream(folder / "hf/config.json") << config.dump();

  const std::string error =
      message_of(ErrorKind::data, [&] { import_hf(folder / "hf", folder / "back"); });

  EXPECT_NE(error.find("65536 experts in 2 layers"), std::string::npos) << error;
}

TEST(HuggingFaceExperts, AMissingOneIsNamed) {
  const TempDirectory folder;
  export_model(folder, with_experts());
  const std::string lost = "model.layers.1.mlp.experts.2.down_proj.weight";
  rewrite(folder / "hf", folder / "short", /*stacked=*/false, lost);

  const std::string error =
      message_of(ErrorKind::data, [&] { import_hf(folder / "short", folder / "back"); });

  EXPECT_NE(error.find("missing: " + lost), std::string::npos) << error;
}

TEST(HuggingFaceExperts, AreRefusedWhereNoArchitectureHasThem) {
  const TempDirectory folder;
  model::ModelConfig config = with_experts();
  config.moe.num_shared_experts = 1;
  config.moe.router_score = "sigmoid";
  save_model(folder / "run/checkpoints", config, 1);

  const std::string error = message_of(ErrorKind::usage, [&] {
    export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
  });

  EXPECT_NE(error.find("model.router_score = sigmoid, nor model.num_shared_experts = 1"),
            std::string::npos)
      << error;
  EXPECT_FALSE(fs::exists(folder / "hf"));
}

TEST(HuggingFaceExperts, AreRefusedInEverySecondLayer) {
  Json config = parse_json(hf_config_text(with_experts(), DType::f32, {}), "test");
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {2};

  const std::string error =
      message_of(ErrorKind::data, [&] { (void)model_from_hf(config, "test"); });

  EXPECT_NE(error.find("decoder_sparse_step = 2, must be 1"), std::string::npos) << error;
  EXPECT_NE(error.find("mlp_only_layers"), std::string::npos) << error;
}

TEST(HuggingFaceExperts, DenseLayersAreASet) {
  Json config = parse_json(hf_config_text(with_experts(), DType::f32, {}), "test");
  config["num_hidden_layers"] = 4;
  config["mlp_only_layers"] = {1, 0};
  EXPECT_EQ(model_from_hf(config, "test").moe.first_dense_layers, 2);
  config["mlp_only_layers"] = nullptr;
  EXPECT_EQ(model_from_hf(config, "test").moe.first_dense_layers, 0);
  for (const Json& wrong : {Json(0), Json{{"a", 0}}, Json{0, 0}, Json{"0"}}) {
    config["mlp_only_layers"] = wrong;
    EXPECT_NE(message_of(ErrorKind::data, [&] { (void)model_from_hf(config, "test"); })
                  .find("mlp_only_layers = "),
              std::string::npos)
        << wrong;
  }
  config["mlp_only_layers"] = Json::array();
  config["router_aux_loss_coef"] = -1;
  EXPECT_NE(message_of(ErrorKind::data, [&] { (void)model_from_hf(config, "test"); })
                .find("router_aux_loss_coef = -1"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::checkpoint
