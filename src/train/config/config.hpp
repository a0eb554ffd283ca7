#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/by_name.hpp"
#include "core/own_keys.hpp"
#include "data/batch_phases.hpp"
#include "model/fp8_linears.hpp"
#include "model/lora/lora_config.hpp"
#include "optim/config.hpp"
#include "parallel/config.hpp"

namespace trireme::train {

struct TrainConfig {
  std::int64_t steps = 0;
  double epochs = 1;
  std::int64_t num_samples = 0;
  double tokens_per_param = 0;
  std::int64_t seq_len = 0;
  std::int64_t micro_batch = 4;
  std::int64_t global_batch = 0;
  std::int64_t accumulation = 0;
  std::string precision = "auto";
  std::string fp8 = "off";
  std::string device = "auto";
  std::int64_t seed = 42;
  std::int64_t log_every = 10;
  std::int64_t metrics_every = 1;
  std::int64_t eval_every = 0;
  std::int64_t patience = 0;
  double ema_decay = 0;
  bool eval_ema = false;
  std::int64_t threads = 0;
  bool fused_ops = true;
  std::string plain_ops;
  double comm_timeout_s = 600;
  double start_timeout_s = 300;
  std::int64_t max_skipped_steps = 5;
  std::int64_t hash_weights_every = 1000;
  std::string late_results = "auto";
  std::string cuda_graph = "auto";
  bool deterministic = true;
  std::string profile;
  std::string window_schedule;

  /// Returns the value of `fp8`, which must be valid.
  [[nodiscard]] model::Fp8Mode fp8_mode() const {
    return by_name<model::Fp8Mode>(model::kFp8Modes, fp8);
  }

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("steps", self.steps, "number of optimizer steps; 0: as many as `epochs` needs");
    visit(
        "epochs", self.epochs,
        "passes over the data if steps is 0; the last update takes the remaining samples, and no sample is repeated to fill it");
    visit(
        "num_samples", self.num_samples,
        "number of samples (sequences or preference pairs) in the whole run, instead of epochs; 0: as many as epochs needs if steps is 0, otherwise steps x global_batch");
    visit(
        "tokens_per_param", self.tokens_per_param,
        "training tokens per parameter of the model, instead of epochs, if steps is 0: steps = tokens_per_param x parameters / (global_batch x seq_len), rounded down; 0: not used");
    visit("seq_len", self.seq_len,
          "tokens per sequence; 0: the length that the data set was packed for");
    visit("micro_batch", self.micro_batch,
          "micro batch size: sequences per forward pass on one rank");
    visit(
        "global_batch", self.global_batch,
        "global batch size: sequences per update over all ranks; 0: from accumulation if that is set, otherwise the first multiple of data ranks x micro_batch from 32 on (a resumed run keeps its value)");
    visit(
        "accumulation", self.accumulation,
        "gradient-accumulation steps per update, instead of global_batch; 0: as many as global_batch needs");
    visit(
        "precision", self.precision,
        "fp32, bf16 or fp16 (with fp32 master weights), or fp64; auto: bf16 on a GPU that supports it, otherwise fp32 (a resumed run keeps its value, on any device)");
    visit(
        "fp8", self.fp8,
        "fp8 products of the linears of blocks with at least 128 rows and columns: off, tensorwise (one scale per tensor), rowwise (one per row) or delayed (one per tensor, from the last 16 updates); needs a GPU of compute capability 8.9 or later, or a CPU (slow reference)");
    visit("device", self.device, "device to train on: cpu, cuda, or auto (a GPU if there is one)");
    visit("seed", self.seed, "random seed for weight initialization, data order and dropout");
    visit("log_every", self.log_every, "steps between progress lines; 0: no progress lines");
    visit("metrics_every", self.metrics_every, "steps between lines of metrics.jsonl");
    visit("eval_every", self.eval_every,
          "steps between validations (needs data.valid_path or data.split); 0: no validation");
    visit("patience", self.patience,
          "number of validations in a row without a lower loss that end the run early; 0: never");
    visit(
        "ema_decay", self.ema_decay,
        "decay of the exponential moving average (EMA) of the weights, in [0, 1), such as 0.999; checkpoints hold the EMA; 0: no EMA");
    visit("eval_ema", self.eval_ema, "validate with the EMA of the weights");
    visit("threads", self.threads,
          "CPU threads per rank; 0: OMP_NUM_THREADS, otherwise cores / ranks of the node");
    visit("fused_ops", self.fused_ops,
          "use the fused native CPU kernels instead of plain operations");
    visit(
        "plain_ops", self.plain_ops,
        "operations that are computed plainly although fused_ops is on, separated by commas, such as rms_norm,rope; to measure or to get around a kernel");
    visit("comm_timeout_s", self.comm_timeout_s,
          "timeout of a collective in seconds, after which it counts as hung");
    visit(
        "start_timeout_s", self.start_timeout_s,
        "timeout in seconds from the start of the processes until MPI has connected all ranks; after it the run ends with exit code 5 and names the missing ranks");
    visit(
        "max_skipped_steps", self.max_skipped_steps,
        "number of updates in a row that may be skipped because a loss or gradient is not finite; one more ends the run with exit code 6");
    visit(
        "hash_weights_every", self.hash_weights_every,
        "steps between hashes of the weights in the step hash log (chain.txt); 0: no weight hashes");
    visit(
        "late_results", self.late_results,
        "read loss and gradient norm of a step while the device runs the next step, so that the device never waits for the host: auto (on a GPU), true or false; the numbers are the same, and they are read at once before a validation, a checkpoint or a stop");
    visit(
        "cuda_graph", self.cuda_graph,
        "launch forward and backward of a micro-batch as one CUDA graph, so that small models do not wait for the host: auto (on a GPU, if the model and the task allow it), true (like auto, with a warning if it is not possible) or false");
    visit(
        "deterministic", self.deterministic,
        "use only deterministic kernels on a GPU, so that a resumed run and an equal run have the same bits; false: LibTorch may use faster kernels (cuDNN attention, flash attention with atomics), and such runs agree only up to rounding; changes nothing on a CPU");
    visit(
        "profile", self.profile,
        "steps and ranks to profile, such as steps=10:13,ranks=0 or steps=5,ranks=0,4:7: a Chrome trace per rank and a table of the phases in RUN/profile; empty: none (touch RUN/PROFILE profiles a live run)");
    visit(
        "window_schedule", self.window_schedule,
        "largest attention window of any layer in training, as a list of STEP:WINDOW that ends with a window of 0: 0:256,1000:512,2000:0 means 256 tokens up to step 1000, then 512, and the windows of the model after step 2000; empty: always the windows of the model");
  }
};

struct DataConfig {
  std::string path;
  std::string valid_path;
  std::string split;
  std::string valid_part = "valid";
  std::int64_t valid_tokens = 0;
  std::string packing = "best-fit";
  bool cross_documents = false;
  std::string blend_rule = "table";
  std::int64_t shuffle_block = 0;
  bool allow_template_change = false;
  bool allow_missing_markers = false;
  std::string stage;
  std::string batch_phases;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(
        "path", self.path,
        "token set to train on (a directory that `trireme-data pack` wrote), several sets, a blend `0.7 A + 0.3 B`, phases `...; from STEP: ...`, or a file with such text; a path with blanks, ; or quotes needs double quotes (inside them \\\" is a quote, \\\\ a backslash); in a file, # starts a comment");
    visit("valid_path", self.valid_path, "held-out token set for the validation loss");
    visit(
        "split", self.split,
        "shares of the documents for training, validation and test, such as 969,30,1; empty: all documents for training");
    visit("valid_part", self.valid_part, "part of data.split to validate on: valid or test");
    visit(
        "valid_tokens", self.valid_tokens,
        "validate only on the first N tokens of the validation data, a multiple of the sequence length; 0: on all");
    visit(
        "packing", self.packing,
        "packing of documents into sequences: best-fit (whole documents) or concat (one token stream, cut every seq_len)");
    visit("cross_documents", self.cross_documents,
          "with concat: attention and targets continue into the next document");
    visit(
        "blend_rule", self.blend_rule,
        "sample order of a blend: table (direct access to any sample) or megatron (the same order as Megatron-LM)");
    visit(
        "shuffle_block", self.shuffle_block,
        "number of neighbouring sequences that stay near each other when shuffled, for slow file systems; 0: none");
    visit(
        "allow_template_change", self.allow_template_change,
        "accept data sets with another chat template than the one the model was trained with (--allow-other-template)");
    visit(
        "allow_missing_markers", self.allow_missing_markers,
        "train on chats although the tokenizer lacks the markers of their format as tokens (--allow-missing-markers)");
    visit(
        "stage", self.stage,
        "directory on a node-local disk (such as /tmp): data sets are copied there once per node, checked, read from there and deleted at the end; empty: data sets are read in place");
    visit(
        "batch_phases", self.batch_phases,
        "global batch sizes as a list of STEP:SIZE, such as 0:32,1000:64: after 1000 steps an update has 64 sequences; empty: train.global_batch for all steps");
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
    visit("every", self.every, "steps between checkpoints; 0: only at the last step");
    visit("keep_last", self.keep_last, "number of newest checkpoints to keep; 0: all");
    visit("keep_every", self.keep_every,
          "checkpoints of steps divisible by this number are never deleted; 0: none");
    visit("keep_best", self.keep_best,
          "number of checkpoints with the lowest validation losses to keep; 0: none");
    visit("async", self.async, "write checkpoints in the background while training continues");
    visit(
        "write_mb_per_s", self.write_mb_per_s,
        "with async: write limit of each rank in MB/s; 0: spread over half the time between saves, at least 100");
    visit(
        "resume", self.resume,
        "auto (newest valid checkpoint of the run, or a new start if there is none), never, or the path of a model (checkpoint, run or Hugging Face directory) that a run without checkpoints starts from");
    visit(
        "start", self.start,
        "parts that a new run takes from the checkpoint of resume: state (configuration, optimizer state, step and data position) or weights (the model only, from step 0; imported models have only weights)");
  }
};

/// The sinks that receive the metrics of a run (report/sinks.hpp).
struct MetricsConfig {
  std::string sinks = "jsonl,progress";
  std::int64_t layer_norms = 0;
  std::string samples{};
  std::int64_t sample_tokens = 64;
  bool energy = true;
  std::vector<OwnKey> keys;  // keys that the sinks declare; sink_fields() adds them

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("sinks", self.sinks, "metrics sinks, separated by commas; none: no sink");
    visit(
        "layer_norms", self.layer_norms,
        "report gradient, update and weight norms of each layer every N steps, and histograms if the sink tensorboard or wandb is on; 0: never");
    visit(
        "samples", self.samples,
        "file of prompts that each validation continues with the current weights, without random choices: one text per line, or a .jsonl file like --prompts of generate; empty: none");
    visit("sample_tokens", self.sample_tokens, "maximum number of new tokens of a sample");
    visit("energy", self.energy, "report the energy of each step if RAPL or NVML can be read");
    visit_own_keys(self.keys, visit);
  }
};

/// The whole configuration of a training run.
struct RunConfig {
  model::ModelConfig model;
  TrainConfig train;
  optim::OptimConfig optim;
  parallel::ParallelConfig parallel;
  CheckpointConfig checkpoint;
  DataConfig data;
  MetricsConfig metrics;
  model::LoraConfig lora;  // only for tasks that can train adapters

  /// Returns the size of each update. data.batch_phases must be valid.
  [[nodiscard]] data::BatchPhases batch_phases() const {
    return data.batch_phases.empty() ? data::BatchPhases(train.global_batch)
                                     : data::BatchPhases(data.batch_phases);
  }
};

/// Adds an error for every value of `config` that is out of range.
void check(const RunConfig& config, Problems& problems);

}  // namespace trireme::train
