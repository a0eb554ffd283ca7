#include "job/submit/submission.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/number.hpp"
#include "core/process/run_program.hpp"
#include "job/event_log.hpp"
#include "job/run_directory.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {
namespace {

namespace fs = std::filesystem;

constexpr double kStart_s = 60;  // assumed start time if the run has no earlier attempt
constexpr double kGit_s = 10;
constexpr std::string_view kAnyTask = "train";  // the job script of tasks without one of their own
constexpr double kWriteBytesPerS = 200e6;  // lower bound for writes of a node to a shared disk

/// Copies a file or a whole directory. New directories are writable even if those of a read-only
/// prefix are not, unlike the directories of a recursive fs::copy().
void copy_into(const fs::path& from, const fs::path& to) {
  std::error_code code;
  if (fs::is_directory(from, code)) {
    make_directories(to);
    for (const fs::directory_entry& entry : fs::directory_iterator(from, code))
      copy_into(entry.path(), to / entry.path().filename());
  } else {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, code);
  }
  if (code) fail_to_write("copy to", to, code.value());
}

/// Writes the revision of the job scripts to `file`, because the frozen copy is not in a repository.
void write_revision(const Installation& installation, const fs::path& file) {
  if (installation.is_installed) {
    write_file_atomic(file, revision_of(installation) + "\n");
    return;
  }
  const ProgramEnd git = run_program(
      {"git", "-C", installation.home.string(), "describe", "--always", "--dirty"}, kGit_s);
  if (git.code == 0) write_file_atomic(file, git.out);
}

/// Returns the memory of a GPU of this type in bytes (of the largest variant); none for an unknown
/// type. Source: Nvidia's data sheets, 2025.
std::optional<std::int64_t> memory_of_gpu(std::string_view type) {
  struct Card {
    std::string_view name;
    std::int64_t gigabytes;
  };

  static constexpr std::array<Card, 13> kCards{{{"b200", 192},
                                                {"h200", 144},
                                                {"h100", 96},
                                                {"gh200", 144},
                                                {"a100", 80},
                                                {"v100", 32},
                                                {"p100", 16},
                                                {"l40s", 48},
                                                {"l40", 48},
                                                {"a40", 48},
                                                {"a30", 24},
                                                {"l4", 24},
                                                {"t4", 16}}};
  std::string lower(type);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Card& card : kCards)
    if (lower == card.name) return card.gigabytes << 30;
  return std::nullopt;
}

}  // namespace

std::optional<scheduler::NodeKind> choose_kind(const std::vector<scheduler::NodeKind>& kinds,
                                               const std::string& partition) {
  std::optional<scheduler::NodeKind> best;
  for (const scheduler::NodeKind& kind : kinds) {
    if (partition.empty() ? !kind.is_default : kind.partition != partition) continue;
    const auto place = [](const scheduler::NodeKind& one) {
      return std::tuple(one.gpus > 0, one.nodes);
    };
    if (!best || place(kind) > place(*best)) best = kind;
  }
  return best;
}

NodeShape shape_of(const SubmitRequest& request, const scheduler::NodeKind& kind) {
  NodeShape shape{std::max<std::int64_t>(1, kind.gpus), 1, kind.gpus};
  shape.ranks = scheduler::scheduler().ranks_per_node(request.sbatch).value_or(shape.ranks);
  shape.cpus_per_rank = std::max<std::int64_t>(1, kind.cpus / shape.ranks);
  return shape;
}

std::filesystem::path script_of(const SubmitRequest& request, const scheduler::NodeKind& kind,
                                const std::filesystem::path& home) {
  const scheduler::SchedulerWords& words = scheduler::scheduler().words();
  const auto script = [&](std::string_view task, std::string_view gpu) {
    return home / words.id / formatted("{}_{}{}", task, gpu, words.script_extension);
  };
  std::error_code code;
  for (const fs::path& own : {script(request.task, kind.gpu_type), script(request.task, "a100")})
    if (fs::exists(own, code)) return own;
  return script(kAnyTask, "a100");
}

std::string time_of(const SubmitRequest& request, const scheduler::NodeKind& kind,
                    const std::filesystem::path& script) {
  std::string time = request.time;
  if (time.empty()) {
    time = scheduler::scheduler().time_of_script(script);
    std::optional<double> asked_s;
    if (!time.empty()) asked_s = scheduler::scheduler().time_s(time);
    if (kind.limit_s && (!asked_s || *asked_s > *kind.limit_s))
      time = cat(static_cast<std::int64_t>(*kind.limit_s / 60));
  }
  if (!time.empty()) (void)scheduler::scheduler().time_s(time);
  return time;
}

scheduler::JobOrder order_of(const SubmitRequest& request, const scheduler::NodeKind& kind,
                             const std::filesystem::path& home,
                             const std::vector<std::string>& arguments) {
  const NodeShape shape = shape_of(request, kind);
  const fs::path script = script_of(request, kind, home);
  scheduler::JobOrder order{.name = request.task,
                            .nodes = request.nodes,
                            .ranks_per_node = shape.ranks,
                            .cpus_per_rank = shape.cpus_per_rank,
                            .gpus_per_node = shape.gpus,
                            .time = time_of(request, kind, script),
                            .chain = request.chain,
                            .after = request.after,
                            .options = request.sbatch,
                            .script = script,
                            .arguments = arguments};
  if (script.filename().string().starts_with(kAnyTask))
    order.arguments.insert(order.arguments.begin(), request.task);
  order.arguments.insert(order.arguments.end(), {"--run", request.run.string()});
  return order;
}

double overhead_of(const std::filesystem::path& run, std::int64_t checkpoint_bytes,
                   std::int64_t nodes) {
  double start_s = kStart_s;
  for (const Attempt& attempt : read_event_log(RunDirectory{run}.event_log()).attempts)
    if (attempt.ready) start_s = attempt.ready->start_s;
  return start_s +
         static_cast<double>(checkpoint_bytes) / (kWriteBytesPerS * static_cast<double>(nodes));
}

std::vector<SubmitProblem> scheduler_problems(const SubmitRequest& request,
                                              const scheduler::NodeKind& kind,
                                              const std::string& time, const JobNeeds& needs) {
  std::vector<SubmitProblem> problems;
  if (request.nodes > kind.nodes) {
    problems.push_back({"nodes-few",
                        formatted("{} nodes are requested, but partition {} has {} nodes of {} "
                                  "CPUs and {} GPUs that are up",
                                  request.nodes, kind.partition, kind.nodes, kind.cpus, kind.gpus),
                        "lower --nodes, or choose another partition"});
  }
  const NodeShape shape = shape_of(request, kind);
  if (shape.ranks > kind.cpus) {
    problems.push_back(
        {"ranks-many",
         formatted("{} are requested on each node, but a node of partition {} has {}",
                   counted(shape.ranks, "rank"), kind.partition, counted(kind.cpus, "CPU")),
         formatted("give --sbatch=--ntasks-per-node={} or less", kind.cpus)});
  }
  const std::int64_t own_bytes = kind.gpus > 0 ? memory_of_gpu(kind.gpu_type).value_or(0)
                                               : (kind.memory_mb << 20) / shape.ranks;
  if (own_bytes > 0 && needs.memory_bytes_per_rank > own_bytes) {
    problems.push_back(
        {"memory",
         formatted("a rank needs {}, but {} has {}",
                   format_bytes(static_cast<double>(needs.memory_bytes_per_rank)),
                   kind.gpus > 0 ? "a GPU " + kind.gpu_type : std::string("its share of a node"),
                   format_bytes(static_cast<double>(own_bytes))),
         "raise parallel.zero or parallel.tp, or lower train.micro_batch"});
  }
  std::optional<double> asked_s;
  if (!time.empty()) asked_s = scheduler::scheduler().time_s(time);
  if (kind.limit_s && asked_s && *asked_s > *kind.limit_s) {
    problems.push_back({"time-long",
                        formatted("--time {} is more than partition {} allows ({})", time,
                                  kind.partition, format_duration(*kind.limit_s)),
                        "lower it, and give --chain N for several dependent jobs"});
  }
  if (asked_s && *asked_s < needs.overhead_s) {
    problems.push_back({"time-short",
                        formatted("--time {} is shorter than a start and a save ({})", time,
                                  format_duration(needs.overhead_s)),
                        "raise it"});
  }
  return problems;
}

Frozen freeze(const SubmitRequest& request, const Installation& installation) {
  const fs::path all = RunDirectory{request.run}.submit();
  int number = 1;  // another queued job of this run may need the existing directories
  while (fs::exists(all / cat(number))) ++number;
  std::error_code code;
  const fs::path place = fs::absolute(all / cat(number), code);
  const fs::path programs = place / "build/release/bin";  // path that env.sh expects
  make_directories(programs);
  for (const char* program : {"trireme", "trireme-data"}) {
    const fs::path from = installation.programs / program;
    if (!fs::exists(from, code)) continue;
    if (installation.is_installed) {
      fs::create_symlink(from, programs / program, code);
      if (code) fail_to_write("link", programs / program, code.value());
    } else {
      copy_into(from, programs / program);
    }
  }
  const std::string scripts(scheduler::scheduler().words().id);
  copy_into(installation.home / scripts, place / scripts);
  const fs::path settings = fs::path("etc") / "trireme";
  if (fs::exists(installation.root / settings, code)) {
    copy_into(installation.root / settings, place / settings);
  }
  if (request.chain > 1) write_file_atomic(place / "chain-code", "");
  write_revision(installation, place / "revision");
  Frozen frozen{place, request.arguments};
  int file = 0;
  const auto copied = [&](const std::string& from) {
    const fs::path copy = place / formatted("config-{}.toml", ++file);
    copy_into(from, copy);
    return copy.string();
  };
  for (std::size_t i = 0; i < frozen.arguments.size(); ++i) {
    std::string& word = frozen.arguments[i];
    if (word == "--config" && i + 1 < frozen.arguments.size()) {
      frozen.arguments[i + 1] = copied(frozen.arguments[i + 1]);
    } else if (word.starts_with("--config=")) {
      word = "--config=" + copied(word.substr(9));
    }
  }
  return frozen;
}

}  // namespace trireme::job
