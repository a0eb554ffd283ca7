#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bin/trireme/commands.hpp"
#include "comm/agree.hpp"
#include "comm/mpi/mpi_library.hpp"
#include "comm/scalars.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/process/installation.hpp"
#include "core/process/run_main.hpp"
#include "core/timer.hpp"
#include "data/order/plan.hpp"
#include "device/device.hpp"
#include "job/doctor/findings.hpp"
#include "job/doctor/node_speeds.hpp"
#include "job/doctor/shared_directories.hpp"
#include "job/doctor/site_settings.hpp"
#include "scheduler/scheduler.hpp"
#include "train/start/run_keys.hpp"

namespace trireme {
namespace {

/// Reports TRIREME_ variables that no program reads: misspelled ones, or those of another version.
std::vector<job::Finding> unread_variables() {
  const train::AllTaskKeys all;
  config::ConfigSet* const keys = all.keys.get();
  keys->load_environment();
  std::vector<job::Finding> findings;
  for (const std::string& warning : keys->warnings()) {
    findings.push_back({"variable-unread", job::Finding::Severity::warning, "", warning,
                        "unset it or correct its name"});
  }
  if (const auto error = comm::capture([&] { keys->finish(); })) {
    findings.push_back({"variable-wrong", job::Finding::Severity::error, "", error->what(),
                        "correct or unset it"});
  }
  return findings;
}

std::vector<std::string> hosts_of(const std::vector<job::RankFacts>& ranks) {
  std::vector<std::string> hosts;
  for (const job::RankFacts& one : ranks) {
    if (std::find(hosts.begin(), hosts.end(), one.device.host) == hosts.end())
      hosts.push_back(one.device.host);
  }
  return hosts;
}

/// Returns the directories of the token sets that `--data` names.
std::vector<std::filesystem::path> sets_of(const std::string& data) {
  std::vector<std::filesystem::path> sets;
  if (data.empty()) return sets;
  for (const data::PlanPhase& phase : data::read_plan(data, "--data")) {
    for (const data::PlanSource& source : phase.sources)
      sets.insert(sets.end(), source.folders.begin(), source.folders.end());
  }
  return sets;
}

bool has_error(const std::vector<job::Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const job::Finding& one) {
    return one.severity == job::Finding::Severity::error;
  });
}

struct DoctorSettings {
  std::string run;
  std::string data;
  bool json = false;
};

/// Returns how the loader found the MPI library, in words.
std::string mpi_origin(const comm::MpiLibrary& mpi) {
  const char* const value = std::getenv("LD_LIBRARY_PATH");
  const std::string directory = std::filesystem::path(mpi.file).parent_path();
  std::stringstream directories(value != nullptr ? value : "");
  for (std::string one; std::getline(directories, one, ':');) {
    if (std::filesystem::path(one).lexically_normal() == directory) return "LD_LIBRARY_PATH";
  }
  return "search path of the program and of the system";
}

std::vector<job::RankFacts> gather(const comm::LaunchInfo& launch, comm::Communicator& world) {
  job::RankFacts mine = job::own_facts(launch, device::set_cpu_threads(0, launch.local_size));
  const at::Device device = device::choose_device("auto", launch.local_rank);
  mine.device.gpu = device::gpu_identity(device);
  mine.device.num_gpus = device::num_visible_gpus();
  mine.device.was_chosen = false;
  const device::CudaVersions cuda = device::cuda_versions();
  mine.cuda_driver = cuda.driver;
  mine.cuda_runtime = cuda.runtime;
  if (device.is_cuda()) {
    const MachineMemory memory = device::device_memory(device);
    mine.gpu_free_bytes = static_cast<std::int64_t>(memory.available);
    mine.gpu_total_bytes = static_cast<std::int64_t>(memory.total);
  }
  world.barrier();
  mine.clock_s = unix_time_s();
  std::vector<job::RankFacts> all;
  for (const std::string& text : comm::gather_texts(world, job::to_text(mine)))
    all.push_back(job::rank_facts_from(text));
  return all;
}

void show(bool as_json, const std::vector<job::Finding>& findings, const job::SpeedReport& speeds,
          const std::vector<job::RankFacts>& ranks,
          const std::vector<job::SettingsFile>& settings) {
  const comm::MpiLibrary mpi = comm::mpi_library();
  const std::string exclude = joined(job::hosts_to_exclude(findings, hosts_of(ranks)), ",");
  if (as_json) {
    Json json{{"ok", !has_error(findings)},
              {"findings", Json::array()},
              {"nodes", Json::array()},
              {"exclude", exclude},
              {"mpi", nullptr},
              {"settings", Json::array()}};
    if (!mpi.version.empty())
      json["mpi"] = {{"version", mpi.version}, {"file", mpi.file}, {"from", mpi_origin(mpi)}};
    for (const job::Finding& one : findings) {
      json["findings"].push_back({{"id", one.id},
                                  {"severity", job::severity_name(one.severity)},
                                  {"where", one.where},
                                  {"what", one.what},
                                  {"do", one.advice}});
    }
    for (const job::NodeSpeed& one : speeds.nodes)
      json["nodes"].push_back({{"host", one.host}, {"allreduce_gb_s", one.allreduce_gb_s}});
    for (const job::SettingsFile& one : settings)
      json["settings"].push_back({{"file", one.path.string()}, {"source", one.source}});
    print(json_line(json));
    return;
  }
  std::string text =
      formatted("{} rank{} on {} node{}\n", ranks.size(), ranks.size() == 1 ? "" : "s",
                speeds.nodes.size(), speeds.nodes.size() == 1 ? "" : "s");
  for (const job::NodeSpeed& one : speeds.nodes) {
    if (one.allreduce_gb_s > 0)
      text +=
          formatted("  {}: all-reduce {}/s\n", one.host, format_bytes(1e9 * one.allreduce_gb_s));
  }
  if (!mpi.version.empty())
    text += formatted("  MPI: {}, {} (from {})\n", mpi.version, mpi.file, mpi_origin(mpi));
  for (const job::SettingsFile& one : settings)
    text += formatted("  settings of job scripts: {} ({})\n", one.path.string(), one.source);
  if (settings.empty()) text += "  settings of job scripts: no file, so all have their defaults\n";
  for (const job::Finding& one : findings)
    text += formatted("{}: {} [{}]\n", job::severity_name(one.severity), one.line(), one.id);
  if (!exclude.empty())
    text += scheduler::scheduler().exclude_option(exclude) + " excludes the broken nodes\n";
  if (findings.empty()) text += "no problems found\n";
  print(text);
}

int run(const DoctorSettings& settings, const comm::Launch& launch) {
  comm::Communicator& world = launch.world();
  const bool is_first = world.rank() == 0;
  const std::vector<job::RankFacts> ranks = gather(launch.info(), world);
  const std::vector<job::RankDevice> devices = job::devices_of(ranks);
  const std::vector<std::filesystem::path> sets =
      comm::all_or_none(world, [&] { return sets_of(settings.data); });
  std::vector<job::Finding> findings;
  if (is_first) findings = job::findings_of(ranks);
  for (const job::Finding& one :
       job::check_directories(world, launch.info(), devices, {settings.run, sets}))
    findings.push_back(one);
  const job::SpeedReport speeds = job::measure_nodes(world, launch.info());
  if (is_first) {
    for (const job::Finding& one : speeds.findings) findings.push_back(one);
    for (const job::Finding& one : unread_variables()) findings.push_back(one);
    const job::SiteSettings site = job::site_settings(own_installation().root);
    findings.insert(findings.end(), site.findings.begin(), site.findings.end());
    show(settings.json, findings, speeds, ranks, site.files);
  }
  const std::int64_t failed = is_first && has_error(findings) ? 1 : 0;
  const bool any = comm::broadcast_value(world, failed, 0, "doctor") == 1;
  if (!any) return kExitDone;
  // srun --kill-on-bad-exit sends SIGTERM to the ranks that exit after the first one, and would
  // then report the signal instead of the exit code.
  std::signal(SIGTERM, SIG_IGN);
  return exit_code(ErrorKind::usage);
}

}  // namespace

void add_doctor_command(config::CommandLine& line, comm::Launch& launch) {
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
      .ranks(config::Ranks::all)
      .run([settings, &launch] { return run(*settings, launch); });
}

}  // namespace trireme
