#include "train/planner/layout_space.hpp"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>

#include "parallel/pipeline/stage_plan.hpp"
#include "pipeline/named.hpp"
#include "train/config/layout.hpp"
#include "train/config/layout_reasons.hpp"

namespace trireme::planner {
namespace {

constexpr std::int64_t kMostMicroBatch = 64;

struct PipelineForm {
  std::string schedule;
  std::int64_t virtual_stages;
};

/// Enumerates the layouts axis by axis; the choices of an axis depend on the axes before it.
class Space {
 public:
  Space(const PlanRequest& request, const Cluster& cluster, Rejected& rejected)
      : request_(request), model_(request.config.model), cluster_(cluster), rejected_(rejected) {}

  std::vector<Layout> walk() {
    const std::int64_t ranks = cluster_.ranks();
    const parallel::ParallelConfig& given = request_.config.parallel;
    for (const std::int64_t tp : choices("parallel.tp", given.tp, tp_sizes())) {
      for (const std::int64_t cp : choices("parallel.cp", given.cp, cp_sizes(ranks / tp))) {
        const std::int64_t rest = std::max<std::int64_t>(1, ranks / (tp * cp));
        for (const std::int64_t pp : choices("parallel.pp", given.pp, pp_sizes(rest))) {
          if (ranks % (tp * cp * pp) != 0) {
            ++rejected_["layout"];
            continue;
          }
          Layout layout{given, 1};
          layout.parallel.tp = tp;
          layout.parallel.cp = cp;
          layout.parallel.pp = pp;
          layout.parallel.stages = request_.keeps("parallel.stages") ? given.stages : "auto";
          if (!request_.keeps("parallel.sequence_parallel"))
            layout.parallel.sequence_parallel =
                tp > 1 && request_.config.train.seq_len / cp % tp == 0;
          if (!request_.keeps("parallel.tp_chunks"))
            layout.parallel.tp_chunks = tp > 1 && !model_.moe.on() ? kTpChunks : 1;
          add_experts(layout);
        }
      }
    }
    return std::move(layouts_);
  }

 private:
  static constexpr std::int64_t kTpChunks = 4;
  static constexpr std::int64_t kMostGrown = 8;

  [[nodiscard]] std::vector<std::int64_t> choices(const char* key, std::int64_t given,
                                                  std::vector<std::int64_t> all) const {
    if (request_.keeps(key)) return {given};
    return all;
  }

  [[nodiscard]] std::vector<std::int64_t> tp_sizes() const {
    std::vector<std::int64_t> sizes = parallel::divisors(cluster_.ranks());
    std::erase_if(sizes, [&](std::int64_t tp) {
      return tp > cluster_.per_node || cluster_.per_node % tp != 0 || tp > model_.num_heads;
    });
    return sizes;
  }

  [[nodiscard]] std::vector<std::int64_t> cp_sizes(std::int64_t rest) const {
    std::vector<std::int64_t> sizes{1};
    for (std::int64_t cp = 2; cp <= rest && rest % cp == 0; cp *= 2)
      if (request_.config.train.seq_len % (2 * cp) == 0) sizes.push_back(cp);
    return model_.attention_dropout > 0 ? std::vector<std::int64_t>{1} : sizes;
  }

  [[nodiscard]] std::vector<std::int64_t> pp_sizes(std::int64_t rest) const {
    std::vector<std::int64_t> sizes = parallel::divisors(rest);
    std::erase_if(sizes, [&](std::int64_t pp) { return pp > model_.num_layers; });
    return sizes;
  }

  void add_experts(Layout layout) {
    const std::int64_t experts = model_.moe.num_experts;
    const parallel::ParallelConfig& given = request_.config.parallel;
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs{{given.ep, 0}};
    if (model_.moe.on() && !request_.keeps("parallel.ep")) {
      pairs = {{1, 0}};
      for (const std::int64_t etp : std::set<std::int64_t>{layout.parallel.tp, 1}) {
        const std::int64_t ranks = cluster_.ranks() / layout.parallel.pp / etp;
        for (const std::int64_t ep : parallel::divisors(experts))
          if (ep > 1 && ranks % ep == 0)
            pairs.emplace_back(ep, etp == layout.parallel.tp ? 0 : etp);
      }
    }
    const bool divides = given.etp == 0 || layout.parallel.tp % given.etp == 0;
    if (request_.keeps("parallel.etp") && !divides) return;
    for (const auto& [ep, etp] : pairs) {
      layout.parallel.ep = ep;
      if (!request_.keeps("parallel.etp")) layout.parallel.etp = etp;
      add_schedules(layout);
    }
  }

  /// Returns the schedules with their stages per rank. If the command line fixes one of the two,
  /// the other is still searched.
  [[nodiscard]] std::vector<PipelineForm> forms(std::int64_t pp) const {
    const parallel::ParallelConfig& given = request_.config.parallel;
    const bool keeps_schedule = request_.keeps("parallel.schedule");
    std::vector<PipelineForm> forms;
    for (const std::string& schedule :
         keeps_schedule ? std::vector{given.schedule} : schedules(pp)) {
      for (const std::int64_t v : choices("parallel.virtual_stages", given.virtual_stages,
                                          stages_per_rank(schedule, pp))) {
        const auto stages = static_cast<int>(v);
        const bool is_another = schedule == "interleaved" && v == 1;  // 1f1b
        if (!keeps_schedule && pp > 1 &&
            (is_another || !pipeline::mistake_in_stages(schedule, stages).empty()))
          continue;
        forms.push_back({schedule, v});
      }
    }
    return forms;
  }

  [[nodiscard]] std::vector<std::string> schedules(std::int64_t pp) const {
    if (pp == 1) return {"1f1b"};
    std::vector<std::string> names{"1f1b", "zb-h1", "interleaved"};
    if (2 * pp > model_.num_layers) return names;
    // The order of zb-v is built action by action, which takes long for long pipelines.
    if (pp <= kMostGrown) names.emplace_back("zb-v");
    names.emplace_back("dualpipe-v");
    return names;
  }

  /// Returns the numbers of interleaved stages that divide the layers evenly, and always two.
  [[nodiscard]] std::vector<std::int64_t> stages_per_rank(const std::string& schedule,
                                                          std::int64_t pp) const {
    std::vector<std::int64_t> stages{1};
    if (pp == 1 || (schedule != "interleaved" && schedule != "auto")) return stages;
    for (const std::int64_t v : {2, 3, 4, 6, 8})
      if (pp * v <= model_.num_layers && (v == 2 || model_.num_layers % (pp * v) == 0))
        stages.push_back(v);
    return stages;
  }

  void add_schedules(Layout layout) {
    for (const PipelineForm& form : forms(layout.parallel.pp)) {
      layout.parallel.schedule = form.schedule;
      layout.parallel.virtual_stages = form.virtual_stages;
      add_data(layout);
    }
  }

  void add_data(Layout layout) {
    const std::int64_t data = cluster_.ranks() / (layout.parallel.tp * layout.parallel.pp);
    const parallel::ParallelConfig& given = request_.config.parallel;
    // ZeRO-2 in a pipeline reduces the gradients of every micro batch and saves little memory.
    std::vector<std::int64_t> stages{0};
    if (data > 1 && !layout.parallel.reproducible && layout.parallel.local_steps == 1)
      stages = layout.parallel.pp > 1 ? std::vector<std::int64_t>{0, 1, 3}
                                      : std::vector<std::int64_t>{0, 1, 2, 3};
    const std::int64_t here = cluster_.per_node / layout.parallel.tp;
    for (const std::int64_t zero : choices("parallel.zero", given.zero, stages)) {
      std::vector<std::int64_t> shards{0};
      if (zero > 0 && here > 1 && here < data && data % here == 0) shards.push_back(here);
      for (const std::int64_t shard : choices("parallel.zero_shard", given.zero_shard, shards)) {
        layout.parallel.zero = zero;
        layout.parallel.zero_shard = zero > 0 ? shard : 0;
        if (!is_valid_layout(request_, layout.parallel, cluster_.ranks())) {
          ++rejected_["layout"];
          continue;
        }
        add_batches(layout, data / layout.parallel.cp);
      }
    }
  }

  void add_batches(Layout layout, std::int64_t dp) {
    const int of_file = parallel::micro_batches_of_schedule(layout.parallel);
    std::vector<std::int64_t> rows;
    for (std::int64_t one = 1; one <= kMostMicroBatch; one *= 2) rows.push_back(one);
    for (const std::int64_t one :
         choices("train.micro_batch", request_.config.train.micro_batch, rows)) {
      if (request_.config.train.global_batch % (dp * one) != 0) {
        if (one == 1 || request_.keeps("train.micro_batch")) ++rejected_["batch"];
        continue;
      }
      layout.micro_batch = one;
      const std::int64_t micro_steps = request_.config.train.global_batch / (dp * one);
      if (of_file > 0 && of_file != micro_steps) {
        ++rejected_["schedule"];
        continue;
      }
      const bool too_few =
          micro_steps < 2 * layout.parallel.pp;  // dualpipe-v needs more micro batches
      if (layout.parallel.schedule == "dualpipe-v" && too_few &&
          !request_.keeps("parallel.schedule"))
        continue;
      for (const char* recompute : {"none", "selective", "full"}) {
        if (request_.keeps("parallel.recompute") && request_.config.parallel.recompute != recompute)
          continue;
        layout.parallel.recompute = recompute;
        layouts_.push_back(layout);
      }
    }
  }

  const PlanRequest& request_;
  const model::ModelConfig& model_;
  const Cluster& cluster_;
  Rejected& rejected_;
  std::vector<Layout> layouts_;
};

}  // namespace

bool is_valid_layout(const PlanRequest& request, const parallel::ParallelConfig& parallel,
                     int ranks) {
  Problems problems;
  check(parallel, problems);
  return problems.empty() && train::layout_conflicts(parallel, {request.config.model,
                                                                {request.config.train.seq_len},
                                                                ranks,
                                                                std::nullopt,
                                                                request.config.train.fp8_mode()})
                                 .empty();
}

Problems problems_of_fixed(const PlanRequest& request, int ranks) {
  const parallel::ParallelConfig usual;
  parallel::ParallelConfig fixed = request.config.parallel;
  const auto leave_open = [&](const char* key, auto parallel::ParallelConfig::*value) {
    if (!request.keeps(key)) fixed.*value = usual.*value;
  };
  leave_open("parallel.tp", &parallel::ParallelConfig::tp);
  leave_open("parallel.cp", &parallel::ParallelConfig::cp);
  leave_open("parallel.pp", &parallel::ParallelConfig::pp);
  leave_open("parallel.ep", &parallel::ParallelConfig::ep);
  leave_open("parallel.etp", &parallel::ParallelConfig::etp);
  leave_open("parallel.zero", &parallel::ParallelConfig::zero);
  leave_open("parallel.zero_shard", &parallel::ParallelConfig::zero_shard);
  leave_open("parallel.sequence_parallel", &parallel::ParallelConfig::sequence_parallel);
  leave_open("parallel.tp_chunks", &parallel::ParallelConfig::tp_chunks);
  leave_open("parallel.schedule", &parallel::ParallelConfig::schedule);
  leave_open("parallel.virtual_stages", &parallel::ParallelConfig::virtual_stages);
  leave_open("parallel.stages", &parallel::ParallelConfig::stages);
  if (request.keeps("parallel.etp") && !request.keeps("parallel.tp"))
    fixed.tp = std::max<std::int64_t>(1, fixed.etp);
  Problems problems;
  check(fixed, problems);
  if (problems.empty())
    train::check_layout(fixed,
                        {request.config.model,
                         {request.config.train.seq_len},
                         ranks,
                         std::nullopt,
                         request.config.train.fp8_mode()},
                        problems);
  return problems;
}

std::vector<Layout> layout_space(const PlanRequest& request, const Cluster& cluster,
                                 Rejected& rejected) {
  return Space(request, cluster, rejected).walk();
}

}  // namespace trireme::planner
