#include "bin/trireme/plan/schedule_command.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/problems.hpp"
#include "core/process/run_main.hpp"
#include "pipeline/draw.hpp"
#include "pipeline/schedule_file.hpp"
#include "pipeline/search.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMostRanks = 1024;
constexpr std::int64_t kMostPasses = 1000000;

bool is_named(const std::string& name) {
  return std::ranges::find(pipeline::kSchedules, name) != pipeline::kSchedules.end();
}

/// What was asked for, and what theory says of it where it has a name.
struct Asked {
  pipeline::Schedule schedule;
  std::optional<pipeline::Formula> formula = {};
  std::string origin;
};

Asked asked(const std::string& name, pipeline::Shape shape, const pipeline::Timing& timing,
            int in_flight) {
  if (name == "auto") {
    pipeline::Found found = search_schedule(shape, timing, in_flight);
    return {std::move(found.schedule), {}, found.origin};
  }
  if (!is_named(name)) return {pipeline::parse_schedule(read_file(name), name), {}, "file"};
  shape.virtual_stages = pipeline::stages_a_rank(name, shape.virtual_stages);
  return {named_schedule(name, shape), formula_of(name, shape), name};
}

}  // namespace

ScheduleCommand::ScheduleCommand(CommandLine& line) {
  line.group("plan", "what a layout will do, before it is started");
  line.command("plan schedule", "the order of a pipeline's passes: proof, bubble, memory, picture")
      .option("--schedule", &schedule_, "S",
              joined(pipeline::kSchedules, ", ") + ", auto (the fastest for --times), or a file")
      .option("--stages", &ranks_, "P", "ranks of parallel.pp")
      .option("--virtual", &virtual_stages_, "V", "stages on each rank")
      .option("--micro-batches", &micro_batches_, "M", "of an update")
      .option("--times", &times_, "F,B,W,C",
              "of a stage's forward pass, input and weight gradients, and of a transfer")
      .option("--in-flight", &in_flight_, "N",
              "auto: stage-micro-batches under way on a rank at most; 0: any")
      .option("--draw", &draw_, "X.svg", "also a picture")
      .flag("--json", json_, "lists and figures as JSON")
      .example("trireme plan schedule --schedule zb-h1 --stages 4 --micro-batches 8 --draw zb.svg")
      .run([this] { return run(); });
}

pipeline::Timing ScheduleCommand::timing() const {
  std::vector<double> values;
  for (const std::string& word : split(times_, ',')) {
    const auto value = parse_number(word);
    if (value && *value >= 0) values.push_back(*value);
  }
  if (values.size() != 4 || split(times_, ',').size() != 4 ||
      values[0] + values[1] + values[2] <= 0)
    fail(
        ErrorKind::usage,
        "--times {}, must be four numbers of 0 or more, not all 0: forward, input gradient, weight gradient, transfer",
        times_);
  return {{{values[0], values[1], values[2]}}, values[3]};
}

int ScheduleCommand::run() const {
  Problems problems;
  const auto count = [&](const char* option, std::int64_t value, std::int64_t least,
                         std::int64_t most) {
    if (value < least || value > most)
      problems.add(option, value, formatted("must be in [{}, {}]", least, most));
  };
  count("--stages", ranks_, 1, kMostRanks);
  count("--virtual", virtual_stages_, 1, kMostRanks);
  count("--micro-batches", micro_batches_, 1, kMostPasses);
  count("--in-flight", in_flight_, 0, kMostPasses);
  problems.throw_if_any();
  if (ranks_ * virtual_stages_ * micro_batches_ > kMostPasses)
    problems.add("--micro-batches", micro_batches_,
                 formatted("must leave at most {} stage-micro-batches in all", kMostPasses));
  const std::string mistake =
      pipeline::mistake_in_stages(schedule_, static_cast<int>(virtual_stages_));
  if (is_named(schedule_) && !mistake.empty()) problems.add("--virtual", virtual_stages_, mistake);
  if (!is_named(schedule_) && schedule_ != "auto" && !std::filesystem::exists(schedule_))
    problems.add(
        "--schedule", schedule_,
        formatted("must be {}, auto or a file that exists", joined(pipeline::kSchedules, ", ")));
  problems.throw_if_any();

  const pipeline::Timing timing = this->timing();
  const Asked what = asked(schedule_,
                           {static_cast<int>(ranks_), static_cast<int>(virtual_stages_),
                            static_cast<int>(micro_batches_)},
                           timing, static_cast<int>(in_flight_));
  const pipeline::Simulation simulation = simulate(what.schedule, timing);
  if (!draw_.empty()) write_file_atomic(draw_, pipeline::draw(what.schedule, timing));
  if (!json_) {
    std::string text = pipeline::text_of(what.schedule);
    text += formatted("# {}: valid, bubble {} of the busy time", what.origin,
                      number_text(simulation.bubble));
    if (what.formula)
      text += formatted(" ({}{} for equal passes)", what.formula->exact ? "" : "at least ",
                        number_text(what.formula->bubble));
    text += formatted(", {} stage-micro-batches under way at most\n", simulation.peak());
    print(text);
    return kExitDone;
  }
  Json json{
      {"schedule", what.origin},     {"ranks", Json::array()},         {"valid", true},
      {"bubble", simulation.bubble}, {"bubble_formula", nullptr},      {"peak", simulation.peak()},
      {"peak_formula", nullptr},     {"makespan", simulation.makespan}};
  for (const auto& list : what.schedule.lists) {
    Json passes = Json::array();
    for (const pipeline::Pass& pass : list) passes.push_back(text_of(pass));
    json["ranks"].push_back(std::move(passes));
  }
  if (what.formula) {
    json["bubble_formula"] = what.formula->bubble;
    json["peak_formula"] = what.formula->peak;
    json["formula_is_exact"] = what.formula->exact;
  }
  print(json.dump() + "\n");
  return kExitDone;
}

}  // namespace trireme
