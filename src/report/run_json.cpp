#include "report/run_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::report {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json attempt_json(const AttemptSummary& one) {
  Json cause;
  if (one.root_cause)
    cause = {{"rank", one.root_cause->rank < 0 ? Json(nullptr) : Json(one.root_cause->rank)},
             {"host", text_or_null(one.root_cause->host)},
             {"kind", one.root_cause->kind},
             {"message", one.root_cause->message}};
  return {{"job", text_or_null(one.job)},        {"start", one.start},     {"end", one.end},
          {"from_step", one.from_step},          {"to_step", one.to_step}, {"reason", one.reason},
          {"exit_code", or_null(one.exit_code)}, {"root_cause", cause}};
}

Json rank_times_json(const RankTimes& times) {
  Json json{{"rank", times.rank}, {"host", text_or_null(times.host)}, {"lines", times.lines}};
  for (std::size_t i = 0; i < kRankTimes.size(); ++i)
    json[std::string(kRankTimes[i])] = times.mean_s[i];
  json["mem_peak_bytes"] = times.mem_peak_bytes;
  return json;
}

/// Returns the newest norms of each layer: {"layer_00": {"grad_norm": ..., ...}, ...}.
Json layer_norms_json(const RunReport& run) {
  Json json = Json::object();
  const std::vector<LayerLine>& lines = run.metrics.layer_lines;
  if (lines.empty()) return json;
  const std::vector<double>& values = lines.back().values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::vector<std::string> name = split(run.metrics.layer_names[i], '/');
    json[name.back()][name.front()] = std::isfinite(values[i]) ? Json(values[i]) : Json(nullptr);
  }
  return json;
}

Json run_json(const RunReport& run) {
  Json json{{"run", run.name},
            {"state", run.state},
            {"ranks", or_null(run.ranks)},
            {"params", or_null(run.params)},
            {"steps", or_null(run.steps)},
            {"tokens", run.tokens ? Json(std::llround(*run.tokens)) : Json(nullptr)},
            {"loss_first", or_null(run.loss_first)},
            {"loss_last", or_null(run.loss_last)},
            {"valid_loss", or_null(run.valid_loss)},
            {"valid_reward", or_null(run.valid_reward)},
            {"task_metrics", Json::object()},
            {"tokens_per_s", or_null(run.tokens_per_s)},
            {"mfu", or_null(run.mfu)},
            {"mfu_predicted", or_null(run.mfu_predicted)},
            {"device_hours", or_null(run.device_hours)},
            {"energy_j", or_null(run.energy_j)},
            {"tokens_per_j", or_null(run.tokens_per_j)},
            {"layer_norms", layer_norms_json(run)},
            {"goodput", or_null(run.goodput_share())},
            {"committed_lost", run.goodput.committed_lost},
            {"redone_steps", run.goodput.redone_steps},
            {"speedup", or_null(run.speedup)},
            {"efficiency", or_null(run.efficiency)},
            {"distribution", parsed_or_null(run.distribution, "distribution.json")},
            {"wall_s", nullptr},
            {"attempts", Json::array()},
            {"slow_ranks", Json::array()},
            {"rank_times", Json::array()},
            {"samples", samples_json(run.samples)},
            {"evaluations", to_json(run.evaluations)},
            {"notes", run.notes}};
  if (!run.attempts.empty()) {
    Json wall{{"total", run.goodput.end - run.goodput.begin}};
    for (std::size_t i = 0; i < kActivityNames.size(); ++i)
      wall[kActivityNames[i]] = run.goodput.wall.seconds[i];
    json["wall_s"] = wall;
  }
  for (const TaskChange& one : run.task_changes)
    json["task_metrics"][one.metric.key] = {
        {"title", one.metric.title}, {"first", one.first}, {"last", one.last}};
  for (const AttemptSummary& one : run.attempts) json["attempts"].push_back(attempt_json(one));
  for (const SlowRank& one : run.slow_ranks)
    json["slow_ranks"].push_back({{"rank", one.rank},
                                  {"host", text_or_null(one.host)},
                                  {"excess", one.excess},
                                  {"phase", text_or_null(one.phase)}});
  for (const RankTimes& one : run.rank_times) json["rank_times"].push_back(rank_times_json(one));
  return json;
}

}  // namespace

Json parsed_or_null(const std::string& text, const char* name) {
  if (text.empty()) return nullptr;
  try {
    return parse_json(text, name);
  } catch (const Error&) {
    return nullptr;
  }
}

Json to_json(const std::vector<RunReport>& runs) {
  Json json{{"runs", Json::array()}};
  for (const RunReport& run : runs) json["runs"].push_back(run_json(run));
  return json;
}

}  // namespace trireme::report
