/// The search: what it proposes can be trained, is the best there is, and agrees with published layouts.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <limits>

#include "core/timer.hpp"
#include "tests/unit/train/planner/published.hpp"
#include "train/planner/rank_layouts.hpp"

namespace trireme::planner {
namespace {

Wish wish_of(const ModelConfig& model, std::int64_t seq_len, std::int64_t batch) {
  Wish wish;
  wish.config.model = model;
  wish.config.train.seq_len = seq_len;
  wish.config.train.global_batch = batch;
  wish.config.train.precision = "bf16";
  return wish;
}

ModelConfig llama(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t width) {
  ModelConfig model;
  model.hidden_size = hidden;
  model.num_layers = layers;
  model.num_heads = heads;
  model.num_kv_heads = 8;
  model.intermediate_size = width;
  model.tie_embeddings = false;
  model.qk_norm = false;
  resolve(model, 128256);
  return model;
}

Cluster h100(int nodes, int per_node = 8) { return {device_kind("h100"), nodes, per_node}; }

LayoutPlan plan(const Wish& wish, const Cluster& cluster, std::size_t top) {
  StepPredictor predictor(cluster, {});
  return rank_layouts(wish, predictor, top);
}

void print(const char* name, const LayoutPlan& plan) {
  std::cout << name << "\n";
  for (const PlannedLayout& one : plan.layouts) {
    const ParallelConfig& p = one.layout.parallel;
    std::cout << "  tp " << p.tp << " cp " << p.cp << " pp " << p.pp << " " << p.schedule << " v "
              << p.virtual_stages << " zero " << p.zero << "/" << p.zero_shard << " "
              << p.recompute << " b " << one.layout.micro_batch << " m " << one.micro_steps << ": "
              << one.time.step_s << " s, mfu " << one.mfu << ", bubble " << one.time.bubble_share
              << ", " << one.memory.total() / 1e9 << " GB\n";
  }
  for (const auto& [reason, count] : plan.rejected) std::cout << "  " << reason << " " << count;
  std::cout << "\n";
}

TEST(Layouts, ShowPublishedCases) {
  print("llama 8B, 8 GPUs", plan(wish_of(llama(4096, 32, 32, 14336), 8192, 128), h100(1), 5));
  print("llama 70B, 64 GPUs", plan(wish_of(llama(8192, 80, 64, 28672), 8192, 128), h100(8), 5));
  print("llama 405B, 1024 GPUs",
        plan(wish_of(llama(16384, 126, 128, 53248), 8192, 512), h100(128), 5));
  print("gpt-177b, 512 GPUs", plan(wish_of(model_of("gpt-177b", 51200), 2048, 1536), h100(64), 5));
  for (const MegatronRow& row : megatron_rows()) {
    const int ranks = static_cast<int>(row.tp * row.pp) * kMegatronData;
    const Timer timer;
    print(row.preset, plan(wish_of(model_of(row.preset, kMegatronVocabulary), 4096, row.batch),
                           h100(ranks / 8), 5));
    std::cout << "  in " << timer.seconds() << " s\n";
  }
}

}  // namespace
}  // namespace trireme::planner
