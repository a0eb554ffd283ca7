#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bin/trireme/commands.hpp"
#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "train/planner/calibration.hpp"
#include "train/planner/config_json.hpp"
#include "train/planner/rank_layouts.hpp"
#include "train/start/run_keys.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMostLayoutRanks = planner::kMostPlannedRanks;
constexpr std::int64_t kMostLayouts = 1000;
constexpr std::int64_t kPlanSeqLen = 4096;
constexpr std::int64_t kPlanVocabulary = 6400;  // used if model.vocab_size is not set
constexpr std::int64_t kPlanGptVocabulary =
    131072;  // vocabulary of Megatron-LM's table, which gives the shapes of gpt-*

Json layout_json(const planner::PlannedLayout& one, const std::string& options) {
  Json memory = Json::object();
  planner::LayoutMemory::fields(
      one.memory, [&](const char* name, double bytes) { memory[name] = std::llround(bytes); });
  memory["total"] = std::llround(one.memory.total());
  const planner::Seconds& spent = one.time.spent;
  return {{"parallel", planner::config_json(one.layout.parallel)},
          {"micro_batch", one.layout.micro_batch},
          {"micro_steps", one.micro_steps},
          {"memory_bytes", memory},
          {"step_time_s", one.time.step_s},
          {"tokens_per_s_per_gpu", one.tokens_per_s_per_gpu},
          {"mfu", one.mfu},
          {"bubble_share", one.time.bubble_share},
          {"compute_s", spent.compute},
          {"optimizer_s", one.time.optimizer_s},
          {"exposed_s",
           {{"tp", spent.tp},
            {"cp", spent.cp},
            {"ep", spent.ep},
            {"dp", spent.dp},
            {"pp", one.time.transfer_s}}},
          {"predicted", true},
          {"options", options}};
}

std::string percent(double share) {
  return cat(std::llround(100 * share), " %");
}

std::string layout_text(const planner::PlannedLayout& one, const std::string& options,
                        std::size_t place) {
  const planner::Seconds& spent = one.time.spent;
  const planner::LayoutMemory& memory = one.memory;
  return formatted(
      "{}. {}\n"
      "   step {}, {} tokens/s a GPU, MFU {}, bubble {}, memory {} (weights {}, master weights {}, gradients {}, optimizer {}, activations {}, "
      "logits {}, buffers {})\n"
      "   not hidden: tp {}, cp {}, ep {}, dp {}, pp {}; optimizer {}\n",
      place, options, format_seconds(one.time.step_s), cat(std::llround(one.tokens_per_s_per_gpu)),
      percent(one.mfu), percent(one.time.bubble_share), format_bytes(memory.total()),
      format_bytes(memory.weights), format_bytes(memory.main), format_bytes(memory.grads),
      format_bytes(memory.optimizer), format_bytes(memory.activations), format_bytes(memory.logits),
      format_bytes(memory.buffers), format_seconds(spent.tp), format_seconds(spent.cp),
      format_seconds(spent.ep), format_seconds(spent.dp), format_seconds(one.time.transfer_s),
      format_seconds(one.time.optimizer_s));
}

struct LayoutsSettings {
  train::RunConfig config;
  std::unique_ptr<config::ConfigSet> keys = train::make_run_keys(config);
  std::string gpu;
  std::int64_t nodes = 1;
  std::int64_t per_node = 8;
  std::int64_t top = 5;
  std::string calibration;
  bool json = false;
};

void complete(LayoutsSettings& settings, config::ConfigSet& keys) {
  // The search then varies tp over multiples of the given etp.
  if (!keys.is_set("parallel.tp"))
    settings.config.parallel.tp = std::max<std::int64_t>(1, settings.config.parallel.etp);
  train::finish_run_keys(settings.config, keys);
  const auto in_range = [&](const char* option, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most)
      keys.problems().add(option, value, formatted("must be in [1, {}]", most));
  };
  in_range("--nodes", settings.nodes, kMostLayoutRanks);
  in_range("--gpus-per-node", settings.per_node, kMostLayoutRanks);
  in_range("--top", settings.top, kMostLayouts);
  if (settings.nodes >= 1 && settings.per_node >= 1 && settings.nodes <= kMostLayoutRanks &&
      settings.per_node <= kMostLayoutRanks &&
      settings.nodes * settings.per_node > kMostLayoutRanks)
    keys.problems().add("--nodes", settings.nodes,
                        formatted("must leave at most {} GPUs in all, with --gpus-per-node {}",
                                  kMostLayoutRanks, settings.per_node));
}

bool batch_is_given(const train::TrainConfig& train) {
  return train.global_batch > 0 || train.accumulation > 0;
}

/// Returns the request with all open settings resolved: shape, lengths, precision, global batch
/// size.
planner::PlanRequest request_of(const LayoutsSettings& settings, const planner::Cluster& cluster) {
  planner::PlanRequest request{settings.config};
  model::ModelConfig& model = request.config.model;
  train::TrainConfig& train = request.config.train;
  const bool gpt = model.preset.starts_with("gpt-");
  model::resolve(model, model.vocab_size > 0 ? model.vocab_size
                        : gpt                ? kPlanGptVocabulary
                                             : kPlanVocabulary);
  if (train.seq_len == 0) train.seq_len = std::min(kPlanSeqLen, model.max_seq_len);
  if (train.seq_len < 2 || train.seq_len > model.max_seq_len)
    fail(ErrorKind::usage, "train.seq_len = {}, must be in [2, model.max_seq_len = {}]",
         train.seq_len, model.max_seq_len);
  if (train.precision == "auto") train.precision = cluster.device.shares_node ? "fp32" : "bf16";
  const std::int64_t ranks = cluster.ranks();
  if (train.global_batch == 0)
    train.global_batch = train.accumulation > 0 ? train.accumulation * train.micro_batch * ranks
                                                : planner::default_global_batch(cluster.ranks());
  train.accumulation = 0;
  for (const std::string& key : settings.keys->keys())
    if (settings.keys->is_set(key) && settings.keys->origin(key).starts_with("--"))
      request.fixed.insert(key);
  return request;
}

planner::TimeConstants constants_of(const LayoutsSettings& settings,
                                    const planner::DeviceKind& kind) {
  if (settings.calibration.empty()) return {};
  return planner::calibrate(planner::read_bench_rows(settings.calibration, kind)).constants;
}

/// Returns the options that start a run with this layout: the keys of the layout that were given or
/// differ from their defaults, micro batch size, global batch size and sequence length.
std::string options_of(const LayoutsSettings& settings, const planner::PlanRequest& request,
                       const planner::Layout& layout) {
  const Json usual = planner::config_json(parallel::ParallelConfig{});
  const Json given = planner::config_json(settings.config.parallel);
  const Json chosen = planner::config_json(layout.parallel);
  std::string options;
  for (const auto& [name, value] : chosen.items()) {
    const bool is_fixed = request.keeps(("parallel." + name).c_str());
    if (value == usual[name] && value == given[name] && !is_fixed) continue;
    options += formatted("--parallel.{} {} ", name,
                         value.is_string() ? value.get<std::string>() : value.dump());
  }
  if (settings.config.train.accumulation > 0) options += "--train.accumulation 0 ";
  return options + formatted("--train.micro_batch {} --train.global_batch {} --train.seq_len {}",
                             layout.micro_batch, request.config.train.global_batch,
                             request.config.train.seq_len);
}

std::string json_of(const LayoutsSettings& settings, const planner::PlanRequest& request,
                    const planner::Cluster& cluster, const planner::TimeConstants& constants,
                    const planner::LayoutPlan& plan, const std::vector<std::string>& changes) {
  Json json{{"predicted", true},
            {"gpu", settings.gpu},
            {"nodes", cluster.nodes},
            {"gpus_per_node", cluster.per_node},
            {"ranks", cluster.ranks()},
            {"preset", request.config.model.preset},
            {"parameters", static_cast<std::int64_t>(request.config.model.num_parameters_wide())},
            {"vocab_size", request.config.model.vocab_size},
            {"seq_len", request.config.train.seq_len},
            {"global_batch", request.config.train.global_batch},
            {"precision", request.config.train.precision},
            {"calibrated", !settings.calibration.empty()},
            {"constants",
             {{"efficiency", constants.efficiency},
              {"elementwise_bytes", constants.elementwise_bytes},
              {"tp_hidden", constants.tp_hidden},
              {"network_factor", constants.network_factor}}},
            {"memory_limit_bytes", std::llround(planner::usable_bytes(cluster))},
            {"layouts", Json::array()},
            {"rejected", Json::object()}};
  for (const auto& one : plan.layouts)
    json["layouts"].push_back(layout_json(one, options_of(settings, request, one.layout)));
  for (const auto& [reason, count] : plan.rejected) json["rejected"][reason] = count;
  if (plan.layouts.empty()) json["changes_that_fit"] = changes;
  return json_line(json);
}

std::string text_of(const LayoutsSettings& settings, const planner::PlanRequest& request,
                    const planner::Cluster& cluster, const planner::LayoutPlan& plan) {
  const train::RunConfig& config = request.config;
  std::string text = formatted(
      "{} ({} parameters, vocabulary {}), global batch {} x {} tokens, {}, on {} {} ({} per node)\n"
      "predicted, not measured: {}\n",
      config.model.preset.empty() ? "model" : config.model.preset,
      cat(std::llround(config.model.num_parameters_wide())), config.model.vocab_size,
      config.train.global_batch, config.train.seq_len, config.train.precision, cluster.ranks(),
      settings.gpu, cluster.per_node,
      settings.calibration.empty()
          ? "step times are within about 15 %, their order is more reliable; --calibration helps"
          : "constants from " + settings.calibration);
  for (std::size_t i = 0; i < plan.layouts.size(); ++i)
    text +=
        layout_text(plan.layouts[i], options_of(settings, request, plan.layouts[i].layout), i + 1);
  text += "other layouts:";
  for (const auto& [reason, count] : plan.rejected) text += formatted(" {} {}", reason, count);
  return text + "\n";
}

int run(const LayoutsSettings& settings) {
  const planner::Cluster cluster{planner::device_kind(settings.gpu),
                                 static_cast<int>(settings.nodes),
                                 static_cast<int>(settings.per_node)};
  const planner::TimeConstants constants = constants_of(settings, cluster.device);
  const planner::PlanRequest request = request_of(settings, cluster);
  planner::StepPredictor predictor(cluster, constants);
  const planner::LayoutPlan plan =
      planner::rank_layouts(request, predictor, static_cast<std::size_t>(settings.top));
  std::vector<std::string> changes;
  Problems fixed;
  const bool is_too_large = plan.rejected.contains("memory");
  const bool none_is_legal =
      plan.layouts.empty() && plan.rejected.size() == 1 && plan.rejected.contains("layout");
  if (none_is_legal) fixed = planner::problems_of_fixed(request, cluster.ranks());
  if (plan.layouts.empty() && fixed.empty())
    changes = planner::changes_that_fit(request, cluster, batch_is_given(settings.config.train));
  if (settings.json) print(json_of(settings, request, cluster, constants, plan, changes));
  fixed.throw_if_any();
  if (plan.layouts.empty()) {
    const std::string reasons = joined(plan.rejected, ", ", [](const auto& reason) {
      return formatted("{} {}", reason.first, reason.second);
    });
    const char* other = is_too_large ? "a smaller model or shorter sequences" : "other keys";
    fail(
        is_too_large ? ErrorKind::resource : ErrorKind::usage,
        "no layout of this model trains {} sequences of {} tokens on {} {} ({} per node). Rejected layouts by reason: "
        "{}. What would help: {}",
        request.config.train.global_batch, request.config.train.seq_len, cluster.ranks(),
        settings.gpu, cluster.per_node, reasons.empty() ? "none is possible" : reasons,
        changes.empty() ? other : joined(changes, ", or "));
  }
  if (!settings.json) print(text_of(settings, request, cluster, plan));
  return kExitDone;
}

}  // namespace

void add_plan_command(config::CommandLine& line) {
  const auto settings = std::make_shared<LayoutsSettings>();
  line.command(
          "plan",
          "rank layouts of a model by predicted step time, with memory; see also plan schedule")
      .option("--gpu", &settings->gpu, "KIND",
              cat("kind of GPU: ", joined(planner::device_kind_names(), ", ")),
              config::Need::required)
      .option("--nodes", &settings->nodes, "N", "number of nodes")
      .option("--gpus-per-node", &settings->per_node, "G",
              "GPUs per node (ranks per node for a CPU)")
      .option("--top", &settings->top, "K",
              "number of layouts to show: the best of each tp, cp, pp, ep")
      .option(
          "--calibration", &settings->calibration, "FILE",
          "output of one or more `trireme bench step --json`; constants fitted to it replace the "
          "defaults")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .config(*settings->keys, [settings](config::ConfigSet& keys) { complete(*settings, keys); })
      .example("trireme plan --model.preset gpt-70b --train.seq_len 4096 --gpu h100 --nodes 96")
      .example("trireme plan --config run.toml --gpu a100-80 --nodes 2 --parallel.tp 2 --json")
      .example("trireme plan schedule --schedule zb-h1 --stages 4 --micro-batches 8")
      .run([settings] { return run(*settings); });
}

}  // namespace trireme
