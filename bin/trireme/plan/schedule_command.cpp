#include <algorithm>
#include <nlohmann/json.hpp>

#include "bin/trireme/commands.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/problems.hpp"
#include "core/process/run_main.hpp"
#include "pipeline/draw.hpp"
#include "pipeline/named.hpp"
#include "pipeline/schedule_file.hpp"
#include "pipeline/search.hpp"
#include "pipeline/simulate.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMostRanks = 1024;
constexpr std::int64_t kMostPasses = 1000000;
constexpr double kLongestTime = 1e12;  // sums of a million times do not overflow

bool is_named(const std::string& name) {
  return std::ranges::find(pipeline::kSchedules, name) != pipeline::kSchedules.end();
}

/// Returns `said` with defaults in place of zeros.
pipeline::Shape completed(const pipeline::Shape& said) {
  const auto or_usual = [](int given, int usual) { return given > 0 ? given : usual; };
  return {or_usual(said.ranks, 4), or_usual(said.virtual_stages, 1),
          or_usual(said.micro_batches, 8)};
}

/// The requested schedule and, for a named schedule, its theoretical bubble and memory.
struct RequestedSchedule {
  pipeline::Schedule schedule;
  std::optional<pipeline::Formula> formula = {};
  std::string origin;
};

/// Reads a schedule file. Throws Error(usage) if the command line contradicts the file.
pipeline::Schedule schedule_in(const std::string& file, const pipeline::Shape& said) {
  pipeline::Schedule schedule = pipeline::parse_schedule(read_file(file), file);
  const pipeline::Placement& placement = schedule.placement;
  Problems problems;
  const auto compare = [&](const char* option, int given, int there, int factor = 1) {
    if (given > 0 && given * factor != there)
      problems.add(option, given,
                   formatted("must be left out: {} has {} ranks, {} stages, {} micro-batches", file,
                             placement.ranks, placement.stages(), schedule.micro_batches));
  };
  compare("--stages", said.ranks, placement.ranks);
  compare("--virtual", said.virtual_stages, placement.stages(), placement.ranks);
  compare("--micro-batches", said.micro_batches, schedule.micro_batches);
  problems.throw_if_any();
  return schedule;
}

RequestedSchedule requested_schedule(const std::string& name, const pipeline::Shape& said,
                                     const pipeline::Timing& timing, int in_flight) {
  if (!is_named(name) && name != "auto") return {schedule_in(name, said), {}, "file"};
  pipeline::Shape shape = completed(said);
  if (name == "auto") {
    pipeline::Found found = pipeline::search_schedule(shape, timing, in_flight);
    return {std::move(found.schedule), {}, found.origin};
  }
  shape.virtual_stages = pipeline::stages_per_rank(name, shape.virtual_stages);
  return {pipeline::named_schedule(name, shape), pipeline::formula_of(name, shape), name};
}

struct ScheduleSettings {
  std::string schedule = "1f1b";
  std::int64_t ranks = 0;
  std::int64_t virtual_stages = 0;
  std::int64_t micro_batches = 0;
  std::int64_t in_flight = 0;
  std::string times = "1,1,1,0";
  std::string draw;
  bool json = false;
};

pipeline::Timing timing_of(const std::string& times) {
  std::vector<double> values;
  for (const std::string& word : split(times, ',')) {
    const auto value = parse_number(word);
    if (value && *value >= 0 && *value <= kLongestTime) values.push_back(*value);
  }
  if (values.size() != 4 || split(times, ',').size() != 4 || values[0] + values[1] + values[2] <= 0)
    fail(
        ErrorKind::usage,
        "--times {}, must be four numbers in [0, {}], not all 0: forward, input gradient, weight gradient, transfer",
        times, number_text(kLongestTime));
  return {{{values[0], values[1], values[2]}}, values[3]};
}

int run(const ScheduleSettings& settings) {
  Problems problems;
  const auto count = [&](const char* option, std::int64_t value, std::int64_t least,
                         std::int64_t most) {
    if (value < least || value > most)
      problems.add(option, value, formatted("must be in [{}, {}]", least, most));
  };
  count("--stages", settings.ranks, 0, kMostRanks);
  count("--virtual", settings.virtual_stages, 0, kMostRanks);
  count("--micro-batches", settings.micro_batches, 0, kMostPasses);
  count("--in-flight", settings.in_flight, 0, kMostPasses);
  problems.throw_if_any();
  const pipeline::Shape said{static_cast<int>(settings.ranks),
                             static_cast<int>(settings.virtual_stages),
                             static_cast<int>(settings.micro_batches)};
  const pipeline::Shape shape = completed(said);
  if (std::int64_t{shape.ranks} * shape.virtual_stages * shape.micro_batches > kMostPasses)
    problems.add("--micro-batches", shape.micro_batches,
                 formatted("must give at most {} stage-micro-batches in total", kMostPasses));
  if (settings.schedule == "auto" && settings.in_flight > 0 &&
      settings.in_flight < shape.virtual_stages)
    problems.add("--in-flight", settings.in_flight,
                 formatted("must be 0 (no limit) or at least {}, the stages of a rank",
                           shape.virtual_stages));
  const std::string mistake = pipeline::mistake_in_stages(settings.schedule, shape.virtual_stages);
  if (is_named(settings.schedule) && !mistake.empty())
    problems.add("--virtual", settings.virtual_stages, mistake);
  if (!is_named(settings.schedule) && settings.schedule != "auto" &&
      !std::filesystem::exists(settings.schedule))
    problems.add(
        "--schedule", settings.schedule,
        formatted("must be {}, auto or a file that exists", joined(pipeline::kSchedules, ", ")));
  problems.throw_if_any();

  const pipeline::Timing timing = timing_of(settings.times);
  const RequestedSchedule what =
      requested_schedule(settings.schedule, said, timing, static_cast<int>(settings.in_flight));
  const pipeline::Simulation simulation = pipeline::simulate(what.schedule, timing);
  TRIREME_ASSERT(simulation.stuck.empty());  // parse_schedule rejects files that deadlock
  if (!settings.draw.empty())
    write_file_atomic(settings.draw, pipeline::draw(what.schedule, timing));
  if (!settings.json) {
    std::string text = pipeline::text_of(what.schedule);
    text += formatted("# {}: valid, bubble {} of the busy time", what.origin,
                      number_text(simulation.bubble));
    if (what.formula)
      text += formatted(" ({}{} for equal action times)", what.formula->exact ? "" : "at least ",
                        number_text(what.formula->bubble));
    text += formatted(", at most {} stage-micro-batches in flight\n", simulation.peak());
    print(text);
    return kExitDone;
  }
  Json json{
      {"schedule", what.origin},     {"ranks", Json::array()},         {"valid", true},
      {"bubble", simulation.bubble}, {"bubble_formula", nullptr},      {"peak", simulation.peak()},
      {"peak_formula", nullptr},     {"makespan", simulation.makespan}};
  for (const auto& list : what.schedule.lists) {
    Json passes = Json::array();
    for (const pipeline::StageAction& pass : list) passes.push_back(text_of(pass));
    json["ranks"].push_back(std::move(passes));
  }
  if (what.formula) {
    json["bubble_formula"] = what.formula->bubble;
    json["peak_formula"] = what.formula->peak;
    json["formula_is_exact"] = what.formula->exact;
  }
  print(json_line(json));
  return kExitDone;
}

}  // namespace

void add_plan_schedule_command(config::CommandLine& line) {
  const auto settings = std::make_shared<ScheduleSettings>();
  line.group("plan", "predict step time and memory of a layout");
  line.command("plan schedule", "check, simulate and draw a pipeline schedule")
      .option("--schedule", &settings->schedule, "S",
              "schedule: " + joined(pipeline::kSchedules, ", ") +
                  ", auto (fastest for --times), or a file")
      .option("--stages", &settings->ranks, "P",
              "pipeline ranks (parallel.pp); 0: 4, or those of the file")
      .option("--virtual", &settings->virtual_stages, "V",
              "stages per rank; 0: 1, or those of the file")
      .option("--micro-batches", &settings->micro_batches, "M",
              "micro batches per optimizer step; 0: 8, or those of the file")
      .option("--times", &settings->times, "F,B,W,C",
              "times of a stage's forward, input gradient and weight gradient, and of a transfer")
      .option("--in-flight", &settings->in_flight, "N",
              "with auto: maximum number of stage-micro-batches in flight per rank; 0: no limit")
      .option("--draw", &settings->draw, "X.svg", "also write a drawing of the schedule")
      .flag("--json", settings->json,
            "print the schedule and its figures as one JSON document on one line")
      .example("trireme plan schedule --schedule zb-h1 --stages 4 --micro-batches 8 --draw zb.svg")
      .run([settings] { return run(*settings); });
}

}  // namespace trireme
