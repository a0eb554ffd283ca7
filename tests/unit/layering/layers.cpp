#include "unit/layering/layers.hpp"

namespace trireme::layering {

const std::map<std::string_view, Names>& module_rows() {
  static const std::map<std::string_view, Names> table{
      {"core", {}},
      {"scheduler", {"core"}},
      {"config", {"core", "scheduler"}},
      {"comm", {"core", "scheduler"}},
      {"http", {"core"}},  // runs without LibTorch
      {"ops", {"core"}},
      {"text", {"core"}},
      {"data", {"core"}},
      {"reward", {"core", "text"}},  // runs without LibTorch
      {"pipeline", {"core"}},        // runs without LibTorch
      {"device", {"core", "comm", "ops"}},
      {"parallel",
       {"core", "comm", "device", "ops", "pipeline"}},  // context: attention, chunk by chunk
      {"objective", {"core", "comm", "device", "parallel", "ops"}},
      {"optim", {"core", "comm", "device", "parallel", "ops"}},
      {"model", {"core", "comm", "device", "parallel", "ops"}},
      {"checkpoint", {"core", "comm", "parallel", "text", "model"}},   // host memory: no LibTorch
      {"data_prep", {"core", "config", "comm", "text", "data"}},       // runs without LibTorch
      {"job", {"core", "scheduler", "config", "comm", "checkpoint"}},  // runs without LibTorch
      {"generate",
       {"core", "config", "comm", "device", "parallel", "text", "ops", "model", "checkpoint"}},
      {"train",
       {"core", "scheduler", "job", "config", "comm", "device", "parallel", "text", "data", "optim",
        "ops", "objective", "model", "checkpoint", "generate", "pipeline", "http", "reward"}},
      {"report", {"core", "scheduler", "config", "job", "model"}},  // runs without LibTorch
      {"serve",
       {"core", "config", "comm", "device", "http", "parallel", "text", "ops", "model",
        "checkpoint", "generate"}},
      {"bin", {"core",      "scheduler", "job",   "config", "comm",      "device", "parallel",
               "text",      "data",      "optim", "ops",    "objective", "model",  "checkpoint",
               "data_prep", "generate",  "train", "serve",  "pipeline",  "report"}}};
  return table;
}

const std::map<std::string_view, Names>& subdirectory_rows() {
  static const std::map<std::string_view, Names> table{
      {"core/files", {"core/*"}},
      {"core/hash", {"core/*", "core/files"}},
      {"core/process", {"core/*", "core/files"}},
      {"core/terminal", {"core/*", "core/files"}},
      {"scheduler/slurm", {"scheduler/*"}},
      {"comm/liveness", {"comm/*"}},
      {"comm/self", {"comm/*"}},
      {"comm/p2p", {"comm/*", "comm/liveness", "comm/self"}},
      {"comm/thread", {"comm/*", "comm/p2p"}},
      {"comm/shared", {"comm/*", "comm/p2p"}},
      {"comm/mpi", {"comm/*", "comm/p2p", "comm/self", "comm/shared"}},
      {"comm/nccl", {"comm/*"}},
      {"ops/attention", {"ops/*", "ops/cpu"}},
      {"ops/cpu", {"ops/*"}},  // for activations.hpp
      {"ops/cuda", {"ops/*", "ops/cuda/kernels"}},
      {"ops/cuda/kernels", {"ops/*"}},  // for activations.hpp
      {"model/experts", {"model/*"}},
      {"model/lora", {"model/*"}},
      {"model/stages", {"model/*"}},
      {"generate/cache", {"generate/*"}},
      {"generate/load", {"generate/*"}},
      {"parallel/context", {"parallel/*"}},
      {"parallel/experts", {"parallel/*"}},
      {"parallel/pipeline", {"parallel/*"}},
      {"parallel/tensor", {"parallel/*", "parallel/units"}},
      {"parallel/units", {"parallel/*"}},
      {"text/unicode", {}},
      {"text/split", {"text/unicode"}},
      {"text/spec", {"text/split", "text/unicode"}},
      {"text/bpe", {"text/spec", "text/unicode"}},
      {"text/pieces", {"text/bpe", "text/spec", "text/unicode"}},
      {"text/learn", {"text/*", "text/spec", "text/split", "text/unicode"}},
      {"text/json", {"text/unicode"}},
      {"text/jinja", {"text/json", "text/unicode"}},
      {"text/chat", {"text/*", "text/jinja", "text/json", "text/unicode"}},
      {"data/shards", {}},
      {"data/sequences", {"data/shards"}},
      {"data/order", {"data/*", "data/sequences", "data/shards"}},
      {"checkpoint/format", {}},
      {"checkpoint/disk", {"checkpoint/format"}},
      {"checkpoint/save", {"checkpoint/disk", "checkpoint/format"}},
      {"checkpoint/load", {"checkpoint/disk", "checkpoint/format"}},
      {"checkpoint/tokenizer", {"checkpoint/format"}},
      {"checkpoint/exchange",
       {"checkpoint/disk", "checkpoint/format", "checkpoint/load", "checkpoint/save",
        "checkpoint/tokenizer"}},
      {"checkpoint/hf",
       {"checkpoint/disk", "checkpoint/exchange", "checkpoint/format", "checkpoint/load",
        "checkpoint/save", "checkpoint/tokenizer"}},
      {"checkpoint/gguf",
       {"checkpoint/exchange", "checkpoint/format", "checkpoint/hf", "checkpoint/load",
        "checkpoint/tokenizer"}},
      {"checkpoint/reference", {"checkpoint/exchange"}},
      {"checkpoint/minimind", {"checkpoint/exchange"}},
      {"checkpoint/peft",
       {"checkpoint/exchange", "checkpoint/format", "checkpoint/hf", "checkpoint/load",
        "checkpoint/tokenizer"}},
      {"checkpoint/maintenance",
       {"checkpoint/exchange", "checkpoint/disk", "checkpoint/format", "checkpoint/gguf",
        "checkpoint/hf", "checkpoint/load", "checkpoint/minimind", "checkpoint/peft",
        "checkpoint/save", "checkpoint/tokenizer"}},
      {"checkpoint/bench", {"checkpoint/load", "checkpoint/save"}},
      {"data_prep/input", {"data_prep/*"}},
      {"data_prep/documents", {"data_prep/*", "data_prep/input"}},
      {"data_prep/pack", {"data_prep/*", "data_prep/documents", "data_prep/input"}},
      {"data_prep/import", {"data_prep/*", "data_prep/input", "data_prep/pack"}},
      {"data_prep/tokenizer", {"data_prep/*", "data_prep/documents", "data_prep/input"}},
      {"data_prep/inspect", {"data_prep/input"}},
      {"data_prep/bench",
       {"data_prep/*", "data_prep/documents", "data_prep/input", "data_prep/pack"}},
      {"job/doctor", {"job/*"}},
      {"job/finish", {"job/*"}},
      {"job/watch", {"job/*"}},
      {"job/submit", {"job/*"}},
      {"train/config", {}},
      {"train/rl", {"train/eval"}},
      {"train/task", {"train/config", "train/rl", "train/state", "train/step"}},
      {"train/step", {}},
      {"train/state", {"train/config"}},
      {"train/eval", {"train/step"}},
      {"train/control", {"train/state"}},
      {"train/cost", {"train/config"}},
      {"train/health", {"train/config", "train/cost", "train/state", "train/step"}},
      {"train/report", {"train/config", "train/health"}},
      {"train/profile", {"train/config"}},
      {"train/audit", {"train/cost", "train/step"}},
      {"train/verify", {"train/audit", "train/config", "train/cost", "train/step"}},
      {"train/start",
       {"train/audit", "train/config", "train/control", "train/cost", "train/eval", "train/health",
        "train/report", "train/state", "train/step", "train/task"}},
      {"train/run",
       {"train/audit", "train/config", "train/control", "train/cost", "train/eval", "train/health",
        "train/planner", "train/profile", "train/report", "train/rl", "train/start", "train/state",
        "train/step", "train/task"}},
      {"train/plan", {"train/config", "train/cost", "train/start", "train/task"}},
      {"train/planner", {"train/config", "train/cost"}},
      {"serve/grammar", {}},
      {"serve/tools", {}},
      {"serve/openai", {"serve/tools"}},
      {"serve/jobs", {"serve/*", "serve/grammar", "serve/openai", "serve/tools"}},
      {"bin/trireme", {"bin/*"}},
      {"bin/trireme/chat", {"bin/*", "bin/trireme"}},
      {"bin/trireme/plan", {"bin/*", "bin/trireme"}},
      {"bin/trireme_data", {"bin/*"}}};
  return table;
}

const std::vector<Library>& libraries() {
  static const std::vector<Library> table{
      {{"torch/", "ATen/", "c10/", "caffe2/"},
       {"src/device/", "src/parallel/", "src/model/", "src/ops/", "src/objective/", "src/optim/",
        "src/train/", "src/generate/", "src/serve/"}},
      {{"spdlog/", "fmt/"}, {"src/core/log.cpp"}},
      {{"CLI/"}, {"src/config/command_parser.cpp"}},
      {{"toml++/", "toml.hpp"}, {"src/config/toml_file.cpp"}},
      {{"hdf5.h", "hdf5/", "H5"}, {"src/core/files/hdf5.cpp"}},
      {{"boost/"}, {"src/http/"}},
      {{"histedit.h"}, {"src/core/terminal/line_reader.cpp"}},
      {{"mpi.h"}, {"src/comm/"}},
      {{"nccl.h"}, {"src/comm/nccl/"}}};
  return table;
}

}  // namespace trireme::layering
