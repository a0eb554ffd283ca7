// usage: hf_export_driver export OUT qwen3|llama tied|untied f32|bf16|f16
//            exports a small random model to OUT
//        hf_export_driver import HF OUT [f32|bf16]
//            imports the directory HF to a checkpoint and exports it to OUT
//        hf_export_driver chat OUT TEMPLATE TOKENIZER
//            exports a random model with that chat template and the tokenizer of that directory
//        hf_export_driver rope HEAD_DIM THETA SCALING
//            prints {"frequencies", "attention_factor"}
// hf_export_oracle.py loads the written directories with transformers.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/exchange/hf_tensors.hpp"
#include "checkpoint/exchange/import_weights.hpp"
#include "checkpoint/exchange/special_tokens.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "model/rope_scaling.hpp"

namespace {

using namespace trireme;

void save_random(const std::filesystem::path& folder, bool qwen, bool tied,
                 const checkpoint::StateDict& carried = {}, std::int64_t vocab_size = 96) {
  model::ModelConfig config = model::model_preset(qwen ? "tiny" : "minimind-2-small");
  config.hidden_size = 64;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = qwen ? 24 : 16;  // not hidden_size / num_heads: must come from config.json
  config.tie_embeddings = tied;
  config.rope_theta = 50000.0;
  model::resolve(config, vocab_size);
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0F, 0.1F);
  checkpoint::StateDict state = carried;
  checkpoint::put_model_values(config, state.values);
  std::vector<std::vector<float>> storage;
  for (const checkpoint::NamedShape& tensor : checkpoint::model_tensors(config)) {
    storage.emplace_back(static_cast<std::size_t>(parallel::Slice::whole(tensor.shape).count()));
    for (float& value : storage.back()) value = normal(random);
    state.tensors.push_back({formatted("param/{}", tensor.name), DType::f32, tensor.shape,
                             parallel::Slice::whole(tensor.shape),
                             std::as_writable_bytes(std::span(storage.back())), true});
  }
  comm::SelfCommunicator world;
  checkpoint::save_checkpoint(folder, 1, state, world, {});
}

int run(const std::vector<std::string>& words) {
  const std::filesystem::path output = words.at(words[0] == "import" ? 2 : 1);
  const std::string checkpoint = output.string() + ".run";
  comm::SelfCommunicator world;
  if (words[0] == "rope") {
    const model::RopeScaling scaling = model::parse_rope_scaling(words.at(3));
    const auto frequencies =
        model::rope_frequencies(std::stoll(words.at(1)), std::stod(words.at(2)), scaling);
    const Json json{{"frequencies", frequencies}, {"attention_factor", scaling.attention_factor}};
    std::printf("%s\n", json.dump().c_str());
    return 0;
  }
  if (words[0] == "chat") {
    checkpoint::StateDict carried;
    carried.values[checkpoint::kChatTemplateValue] = words.at(2);
    carried.files = checkpoint::tokenizer_files_of(words.at(3));
    save_random(checkpoint, true, true, carried,
                checkpoint::num_token_ids(carried.files, "carried"));
    checkpoint::export_command({.checkpoint = checkpoint, .output = output}, world);
    return 0;
  }
  if (words[0] == "import") {
    checkpoint::import_command({.hf = words.at(1), .output = checkpoint});
    const std::string dtype = words.size() > 3 ? words[3] : "f32";
    checkpoint::export_command({.checkpoint = checkpoint, .output = output, .dtype = dtype}, world);
    return 0;
  }
  save_random(checkpoint, words.at(2) == "qwen3", words.at(3) == "tied");
  checkpoint::export_command({.checkpoint = checkpoint, .output = output, .dtype = words.at(4)},
                             world);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
