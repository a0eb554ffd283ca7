#include "train/audit/layout_record.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/agree.hpp"
#include "core/join.hpp"
#include "model/stages/rank_stages.hpp"
#include "pipeline/schedule_file.hpp"
#include "pipeline/simulate.hpp"

namespace trireme::train {
namespace {

/// Adds the stages of a rank. Without a pipeline the whole model is one stage.
void add_stages(Json& json, const UpdateFacts& facts, const UpdateCount& count, int rank) {
  const int pp = coords_of(facts, rank).pp;
  const pipeline::Schedule schedule = facts.schedule();
  const std::vector<model::StageRange> stages =
      model::model_stages(facts.model, facts.parallel, facts.length);
  json["stages"] = Json::array();
  for (const int stage : schedule.placement.stages_of(pp)) {
    const model::StageRange& range = stages[static_cast<std::size_t>(stage)];
    json["stages"].push_back({{"stage", stage},
                              {"layers", range.end_layer - range.first_layer},
                              {"embedding", range.has_embedding},
                              {"head", range.has_head}});
  }
  const pipeline::Simulation ideal = pipeline::simulate(schedule, {{pipeline::ActionTimes{}}});
  json["in_flight_peak"] = count.passes().in_flight;
  json["in_flight_peak_formula"] = ideal.peaks[static_cast<std::size_t>(pp)];
  json["bubble_share"] = count.passes().bubble_share ? Json(*count.passes().bubble_share)
                         : facts.parallel.pp == 1    ? Json(0.0)
                                                     : Json();
  json["bubble_share_formula"] = ideal.bubble;
}

Json rank_json(const UpdateFacts& facts, const UpdateCount& count, int rank) {
  const parallel::RankCoords at = coords_of(facts, rank);
  Json json{{"rank", rank},
            {"coords",
             {{"tp", at.tp},
              {"cp", at.cp},
              {"dp", at.dp},
              {"pp", at.pp},
              {"etp", at.etp},
              {"ep", at.ep},
              {"edp", at.edp}}}};
  add_stages(json, facts, count, rank);
  RankMemory::fields(count.memory(),
                     [&](const char* name, std::int64_t value) { json[name] = value; });
  const RankMemory formula = memory_formula(facts, rank);
  RankMemory::fields(formula, [&](const char* name, std::int64_t value) {
    json[cat(name, "_formula")] = value < 0 ? Json() : Json(value);
  });
  return json;
}

}  // namespace

Json collectives_json(const std::vector<CollectiveRow>& counted,
                      const std::vector<CollectiveRow>& formulas) {
  Json rows = Json::array();
  for (const CollectiveRow& row : counted) {
    const auto formula =
        std::find_if(formulas.begin(), formulas.end(), [&](const CollectiveRow& one) {
          return one.group == row.group && one.operation == row.operation &&
                 one.purpose == row.purpose;
        });
    rows.push_back({{"group", row.group},
                    {"size", row.size},
                    {"operation", row.operation},
                    {"purpose", row.purpose},
                    {"count", row.count},
                    {"payload_bytes", row.payload_bytes},
                    {"moved_bytes", row.moved_bytes ? Json(*row.moved_bytes) : Json()},
                    {"formula_bytes", formula == formulas.end() || !formula->moved_bytes
                                          ? Json()
                                          : Json(*formula->moved_bytes)}});
  }
  return rows;
}

Json layout_record(comm::Communicator& control, const parallel::Mesh& mesh,
                   const UpdateFacts& facts, const UpdateCount& count) {
  const std::vector<std::string> ranks =
      comm::gather_texts(control, rank_json(facts, count, control.rank()).dump());
  if (control.rank() != 0) return {};
  Json parallel;
  parallel::ParallelConfig::fields(facts.parallel, [&](const char* name, const auto& value,
                                                       const char*) { parallel[name] = value; });
  parallel["dp"] = mesh.size(parallel::Axis::dp);
  Json record{
      {"ranks", facts.ranks},
      {"backend", mesh.world().backend()},
      {"parallel", parallel},
      {"micro_steps", facts.micro_steps},
      {"schedule", facts.parallel.pp > 1 ? Json(facts.parallel.schedule) : Json()},
      {"per_rank", Json::array()},
      {"collectives", collectives_json(count.collectives(), collectives_formula(facts, 0))}};
  for (const std::string& rank : ranks) record["per_rank"].push_back(Json::parse(rank));
  if (facts.found_schedule) {
    std::vector<std::string> lists = split(pipeline::text_of(*facts.found_schedule), '\n');
    std::erase(lists, "");
    record["schedule_list"] = lists;
  }
  return record;
}

}  // namespace trireme::train
