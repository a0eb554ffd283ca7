#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/own_keys.hpp"
#include "model/lora/lora_config.hpp"
#include "optim/config.hpp"
#include "parallel/config.hpp"

namespace trireme {

struct TrainConfig {
  std::int64_t steps = 0;
  double epochs = 1;
  std::int64_t num_samples = 0;
  std::int64_t seq_len = 0;
  std::int64_t micro_batch = 4;
  std::int64_t global_batch = 0;
  std::int64_t accumulation = 0;
  std::string precision = "auto";
  std::string device = "auto";
  std::int64_t seed = 42;
  std::int64_t log_every = 10;
  std::int64_t metrics_every = 1;
  std::int64_t eval_every = 0;
  std::int64_t threads = 0;
  bool fused_ops = true;
  double comm_timeout_s = 600;
  double start_timeout_s = 300;
  std::int64_t max_skipped_steps = 5;
  std::int64_t hash_weights_every = 1000;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("steps", self.steps, "optimizer steps; 0: as many as `epochs` needs");
    visit("epochs", self.epochs,
          "passes over the data when steps is 0; the last update holds the samples that are left, "
          "and none comes twice to fill it");
    visit("num_samples", self.num_samples,
          "samples (sequences or pairs) of the whole run, instead of epochs; 0: as many as epochs "
          "asks for when steps is 0, else steps x global_batch");
    visit("seq_len", self.seq_len, "tokens of one sequence; 0: the length the set was packed for");
    visit("micro_batch", self.micro_batch, "sequences of one forward pass on one rank");
    visit(
        "global_batch", self.global_batch,
        "sequences of one update, over all ranks and micro-steps; 0: what accumulation makes, "
        "else the next multiple of data ranks x micro_batch from 32 (a resumed run keeps its own)");
    visit("accumulation", self.accumulation,
          "instead of global_batch: micro-steps of one update; 0: as many as global_batch needs");
    visit("precision", self.precision,
          "fp32, bf16 or fp16 (with fp32 main weights), or fp64; auto: bf16 on a GPU that has it, "
          "else fp32 (a resumed run keeps its own, on any device)");
    visit("device", self.device, "auto (a GPU where there is one), cpu or cuda");
    visit("seed", self.seed, "of initial weights, data order and dropout");
    visit("log_every", self.log_every, "steps between progress lines; 0: none");
    visit("metrics_every", self.metrics_every, "steps between lines of metrics.jsonl");
    visit("eval_every", self.eval_every,
          "steps between validation losses (needs data.valid_path or data.split); 0: none");
    visit("threads", self.threads,
          "CPU threads of one rank; 0: OMP_NUM_THREADS, else cores / ranks of the node");
    visit("fused_ops", self.fused_ops, "our fused CPU kernels instead of plain operations");
    visit("comm_timeout_s", self.comm_timeout_s, "seconds after which a collective counts as hung");
    visit("start_timeout_s", self.start_timeout_s,
          "seconds from the begin of the processes until MPI has connected all ranks; then the run "
          "ends with exit code 5 and names the ranks that are missing");
    visit("max_skipped_steps", self.max_skipped_steps,
          "updates in a row skipped for a loss or gradient that is not finite before the run ends "
          "with exit code 6; 0: it ends at the first");
    visit("hash_weights_every", self.hash_weights_every,
          "steps between hashes of the weights that enter the run's step chain; 0: none");
  }
};

struct DataConfig {
  std::string path;
  std::string valid_path;
  std::string split;
  std::string valid_part = "valid";
  std::string packing = "best-fit";
  bool cross_documents = false;
  std::string blend_rule = "table";
  std::int64_t shuffle_block = 0;
  bool allow_template_change = false;
  bool allow_missing_markers = false;
  std::string stage;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(
        "path", self.path,
        "token set to train on (a folder that `trireme-data pack` wrote), several, a blend "
        "`0.7 A + 0.3 B`, phases `...; from STEP: ...`, or a file with that text; a path with "
        "blanks, ; or quotes stands in double quotes (in them \\\" is a quote, \\\\ a backslash); "
        "# starts a comment in a file alone");
    visit("valid_path", self.valid_path, "held-out token set for the validation loss");
    visit("split", self.split,
          "shares of the documents for training, validation and test, as in 969,30,1; empty: all "
          "for training");
    visit("valid_part", self.valid_part, "with split: the part to validate on, valid or test");
    visit("packing", self.packing,
          "best-fit (whole documents) or concat (one stream, cut every seq_len)");
    visit("cross_documents", self.cross_documents,
          "with concat: attention and targets go on into the next document");
    visit("blend_rule", self.blend_rule,
          "table (any sample at once) or megatron (sample for "
          "sample as Megatron-LM blends)");
    visit("shuffle_block", self.shuffle_block,
          "neighbouring sequences that stay near each other, for slow file systems; 0: none");
    visit("allow_template_change", self.allow_template_change,
          "accept data sets whose chat template is not the one that the model was trained with "
          "(--allow-other-template)");
    visit("allow_missing_markers", self.allow_missing_markers,
          "train on chats although the tokenizer does not have the markers of their format as "
          "tokens (--allow-missing-markers)");
    visit(
        "stage", self.stage,
        "a folder of a disk that every node has to itself (as /tmp): sets are copied there once a "
        "node, checked, read from there and deleted at the end; empty: read where they lie");
  }
};

struct CheckpointConfig {
  std::int64_t every = 1000;
  std::int64_t keep_last = 3;
  std::int64_t keep_every = 0;
  std::int64_t keep_best = 0;
  bool async = false;
  double write_mb_per_s = 0;
  std::string resume = "auto";
  std::string start = "state";

  /// Returns true if `resume` is the path of a checkpoint.
  [[nodiscard]] bool names_checkpoint() const { return resume != "auto" && resume != "never"; }

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("every", self.every, "steps between checkpoints; 0: at the last step only");
    visit("keep_last", self.keep_last, "checkpoints kept; 0: all");
    visit("keep_every", self.keep_every, "steps divisible by it are kept for ever; 0: none");
    visit("keep_best", self.keep_best,
          "checkpoints kept for their validation loss, the lowest ones; 0: none");
    visit("async", self.async, "write checkpoints behind training");
    visit(
        "write_mb_per_s", self.write_mb_per_s,
        "with async: MB/s at most of a rank's writer; 0: spread over half the time between saves, "
        "at least 100");
    visit("resume", self.resume,
          "auto (newest good checkpoint of the run, else start), never, or the path of a model "
          "(checkpoint, run or Hugging Face folder) where a run that has none of its own starts");
    visit("start", self.start,
          "what a new run takes from the checkpoint of resume: state (its configuration, moments, "
          "step and place in the data go on) or weights (the model alone, from step 0; also what "
          "an imported one has)");
  }
};

/// The sinks that receive the metrics of a run (report/sinks.hpp).
struct MetricsConfig {
  std::string sinks = "jsonl,progress";
  std::vector<OwnKey> keys;  // keys that the sinks declare; sink_fields() adds them

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("sinks", self.sinks, "metrics sinks, names between commas; none: no sink");
    visit_own_keys(self.keys, visit);
  }
};

/// The whole configuration of a training run.
struct RunConfig {
  ModelConfig model;
  TrainConfig train;
  OptimConfig optim;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  DataConfig data;
  MetricsConfig metrics;
  LoraConfig lora;  // only for tasks that can train adapters
};

}  // namespace trireme
