#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/exchange/hf_tensors.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "core/files/json.hpp"
#include "unit/checkpoint/support.hpp"

/// Small models in checkpoints, for tests of Hugging Face directories.
namespace trireme::test {

inline model::ModelConfig small(bool qwen, bool tied) {
  model::ModelConfig config = model::model_preset(qwen ? "tiny" : "minimind-2-small");
  config.hidden_size = 32;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.tie_embeddings = tied;
  config.rope_theta = 12345.678;
  model::resolve(config, 50);
  return config;
}

/// Saves a checkpoint with random parameters, sharded over `ranks` ranks, and with optimizer state
/// that export must ignore.
inline void save_model(const fs::path& folder, const model::ModelConfig& config, int ranks,
                       const std::map<std::string, std::string>& more = {},
                       const std::string& jinja = "{{ messages }}") {
  std::vector<Logical> logicals;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  for (const checkpoint::NamedShape& tensor : checkpoint::model_tensors(config)) {
    std::vector<float> values(
        static_cast<std::size_t>(parallel::Slice::whole(tensor.shape).count()));
    for (float& value : values) value = normal(random);
    const auto bytes = std::as_bytes(std::span(values));
    logicals.push_back(
        {"param/" + tensor.name, DType::f32, tensor.shape, {bytes.begin(), bytes.end()}});
  }
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    RankState mine = make_rank_state(logicals, world.rank(), ranks, 3, true);
    mine.state.values = more;
    checkpoint::put_model_values(config, mine.state.values);
    mine.state.files["tokenizer.json"] =
        R"({"added_tokens":[{"id":1,"content":"<|im_start|>"},{"id":2,"content":"<|im_end|>"}]})";
    mine.state.files["tokenizer_config.json"] =
        R"({"bos_token":"<|im_start|>","eos_token":{"content":"<|im_end|>"},"pad_token":null})";
    mine.state.files["chat_template.jinja"] = jinja;
    checkpoint::save_checkpoint(folder, 40, mine.state, world, {});
  });
}

/// A byte-level tokenizer with two merges. `more` are further members of its JSON object.
inline std::string byte_tokenizer(const std::string& more, bool ignore_merges = false) {
  SortedJson vocab = SortedJson::object();
  std::int64_t id = 0;
  const auto add = [&](unsigned code) {  // adds a character of the byte alphabet of GPT-2
    std::string token;
    if (code < 0x80) {
      token += static_cast<char>(code);
    } else {
      token += static_cast<char>(0xC0U | (code >> 6U));
      token += static_cast<char>(0x80U | (code & 0x3FU));
    }
    vocab[token] = id++;
  };
  for (unsigned code = 0x21; code <= 0x7E; ++code) add(code);
  for (unsigned code = 0xA1; code <= 0xFF; ++code)
    if (code != 0xAD) add(code);
  for (unsigned code = 0x100; code < 0x144; ++code) add(code);
  vocab["ab"] = id++;
  vocab["abc"] = id++;
  return formatted(
      R"({{"version": "1.0", "model": {{"type": "BPE", "vocab": {}, "merges": ["a b", "ab c"], "ignore_merges": {}}}, "decoder": {{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}}, {}}})",
      vocab.dump(), ignore_merges ? "true" : "false", more);
}

inline constexpr const char* kBytes =
    R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";

inline Json good_config(bool qwen) {
  return parse_json(checkpoint::hf_config_text(small(qwen, true), DType::f32, {}), "test");
}

}  // namespace trireme::test
