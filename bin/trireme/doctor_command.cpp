#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "bin/trireme/commands.hpp"
#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "core/timer.hpp"
#include "data/order/plan.hpp"
#include "device/device.hpp"
#include "job/doctor/findings.hpp"
#include "job/doctor/node_speeds.hpp"
#include "job/doctor/shared_places.hpp"
#include "scheduler/scheduler.hpp"
#include "train/start/run_keys.hpp"

namespace trireme {
namespace {

/// Reports TRIREME_ variables that no program reads: misspelled ones, or those of another version.
std::vector<Finding> unread_variables() {
  const KeysOfAllTasks all;
  ConfigSet* const keys = all.keys.get();
  keys->load_environment();
  std::vector<Finding> findings;
  for (const std::string& warning : keys->warnings()) {
    findings.push_back({"variable-unread", Finding::Severity::warning, "", warning,
                        "unset it or correct its name"});
  }
  if (const auto error = capture([&] { keys->finish(); })) {
    findings.push_back(
        {"variable-wrong", Finding::Severity::error, "", error->what(), "correct or unset it"});
  }
  return findings;
}

std::vector<std::string> hosts_of(const std::vector<RankFacts>& ranks) {
  std::vector<std::string> hosts;
  for (const RankFacts& one : ranks) {
    if (std::find(hosts.begin(), hosts.end(), one.device.host) == hosts.end())
      hosts.push_back(one.device.host);
  }
  return hosts;
}

/// Returns the directories of the token sets that `--data` names.
std::vector<std::filesystem::path> sets_of(const std::string& data) {
  std::vector<std::filesystem::path> sets;
  if (data.empty()) return sets;
  for (const PlanPhase& phase : read_plan(data, "--data")) {
    for (const PlanSource& source : phase.sources)
      sets.insert(sets.end(), source.folders.begin(), source.folders.end());
  }
  return sets;
}

bool has_error(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& one) { return one.severity == Finding::Severity::error; });
}

struct DoctorSettings {
  std::string run;
  std::string data;
  bool json = false;
};

std::vector<RankFacts> gather(const LaunchInfo& launch, Communicator& world) {
  RankFacts mine = own_facts(launch, set_cpu_threads(0, launch.local_size));
  const at::Device device = choose_device("auto", launch.local_rank);
  mine.device.gpu = gpu_identity(device);
  mine.device.num_gpus = num_visible_gpus();
  mine.device.was_chosen = false;
  const CudaVersions cuda = cuda_versions();
  mine.cuda_driver = cuda.driver;
  mine.cuda_runtime = cuda.runtime;
  if (device.is_cuda()) {
    const MachineMemory memory = device_memory(device);
    mine.gpu_free_bytes = static_cast<std::int64_t>(memory.available);
    mine.gpu_total_bytes = static_cast<std::int64_t>(memory.total);
  }
  world.barrier();
  mine.clock_s = unix_time_s();
  std::vector<RankFacts> all;
  for (const std::string& text : gather_texts(world, to_text(mine)))
    all.push_back(rank_facts_from(text));
  return all;
}

void show(bool as_json, const std::vector<Finding>& findings, const SpeedReport& speeds,
          const std::vector<RankFacts>& ranks) {
  const std::string exclude = joined(hosts_to_exclude(findings, hosts_of(ranks)), ",");
  if (as_json) {
    Json json{{"ok", !has_error(findings)},
              {"findings", Json::array()},
              {"nodes", Json::array()},
              {"exclude", exclude}};
    for (const Finding& one : findings) {
      json["findings"].push_back({{"id", one.id},
                                  {"severity", severity_name(one.severity)},
                                  {"where", one.where},
                                  {"what", one.what},
                                  {"do", one.advice}});
    }
    for (const NodeSpeed& one : speeds.nodes)
      json["nodes"].push_back({{"host", one.host}, {"allreduce_gb_s", one.allreduce_gb_s}});
    print(json_line(json));
    return;
  }
  std::string text =
      formatted("{} rank{} on {} node{}\n", ranks.size(), ranks.size() == 1 ? "" : "s",
                speeds.nodes.size(), speeds.nodes.size() == 1 ? "" : "s");
  for (const NodeSpeed& one : speeds.nodes) {
    if (one.allreduce_gb_s > 0)
      text +=
          formatted("  {}: all-reduce {}/s\n", one.host, format_bytes(1e9 * one.allreduce_gb_s));
  }
  for (const Finding& one : findings)
    text += formatted("{}: {} [{}]\n", severity_name(one.severity), one.line(), one.id);
  if (!exclude.empty())
    text += scheduler().exclude_option(exclude) + " excludes the broken nodes\n";
  if (findings.empty()) text += "no problems found\n";
  print(text);
}

int run(const DoctorSettings& settings, const Launch& launch) {
  Communicator& world = launch.world();
  const bool is_first = world.rank() == 0;
  const std::vector<RankFacts> ranks = gather(launch.info(), world);
  std::vector<RankDevice> devices;
  for (const RankFacts& one : ranks) devices.push_back(one.device);
  const std::vector<std::filesystem::path> sets =
      all_or_none(world, [&] { return sets_of(settings.data); });
  std::vector<Finding> findings;
  if (is_first) findings = findings_of(ranks);
  for (const Finding& one : check_places(world, launch.info(), devices, {settings.run, sets}))
    findings.push_back(one);
  const SpeedReport speeds = measure_nodes(world, launch.info());
  if (is_first) {
    for (const Finding& one : speeds.findings) findings.push_back(one);
    for (const Finding& one : unread_variables()) findings.push_back(one);
    show(settings.json, findings, speeds, ranks);
  }
  const std::int64_t failed = is_first && has_error(findings) ? 1 : 0;
  const bool any = broadcast_value(world, failed, 0, "doctor") == 1;
  if (!any) return kExitDone;
  // srun --kill-on-bad-exit sends SIGTERM to the ranks that exit after the first one, and would
  // then report the signal instead of the exit code.
  std::signal(SIGTERM, SIG_IGN);
  return exit_code(ErrorKind::usage);
}

}  // namespace

void add_doctor_command(CommandLine& line, Launch& launch) {
  const auto settings = std::make_shared<DoctorSettings>();
  line.command("doctor",
               "check the environment of all ranks: GPUs, CPUs, limits, directories, network")
      .option("--run", &settings->run, "DIR",
              "run directory that all ranks must be able to share; need not exist")
      .option("--data", &settings->data, "DIR",
              "token set or blend that all ranks must be able to read")
      .flag("--json", settings->json, "print findings and speeds as one JSON document on one line")
      .example("trireme doctor")
      .example("srun --mpi=pmix trireme doctor --run runs/first --data data/pretrain")
      .ranks(Ranks::all)
      .run([settings, &launch] { return run(*settings, launch); });
}

}  // namespace trireme
