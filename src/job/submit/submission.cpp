#include "job/submit/submission.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/error.hpp"
#include "core/files/folders.hpp"
#include "core/files/refusal.hpp"
#include "core/number.hpp"
#include "job/run_folder.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Start, two saves, way out: a job of less time trains nothing.
constexpr double kLeast_s = 120;

void copy_into(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::copy(from, to, fs::copy_options::overwrite_existing | fs::copy_options::recursive, code);
  if (code) fail_to_write("copy to", to, code.value());
}

}  // namespace

NodeShape shape_of(const NodeKind& kind) {
  if (kind.gpus == 0) return {1, std::max<std::int64_t>(1, kind.cpus), 0};
  return {kind.gpus, std::max<std::int64_t>(1, kind.cpus / kind.gpus), kind.gpus};
}

std::string partition_of(const SubmitRequest& request) {
  std::string partition;
  if (const char* set = std::getenv("SBATCH_PARTITION")) partition = set;
  for (std::size_t i = 0; i < request.sbatch.size(); ++i) {
    const std::string& word = request.sbatch[i];
    if (word.starts_with("--partition=")) partition = word.substr(12);
    if ((word == "--partition" || word == "-p") && i + 1 < request.sbatch.size())
      partition = request.sbatch[i + 1];
  }
  return partition;
}

std::filesystem::path script_of(const SubmitRequest& request, const std::filesystem::path& home) {
  return home / "slurm" / formatted("{}_a100.sbatch", request.task);
}

std::vector<std::string> sbatch_words(const SubmitRequest& request, const NodeKind& kind,
                                      const std::filesystem::path& home,
                                      const std::vector<std::string>& arguments) {
  const NodeShape shape = shape_of(kind);
  std::vector<std::string> words{"sbatch",
                                 "--parsable",
                                 "--job-name=" + request.task,
                                 formatted("--nodes={}", request.nodes),
                                 formatted("--ntasks-per-node={}", shape.ranks),
                                 formatted("--cpus-per-task={}", shape.cpus_per_rank),
                                 formatted("--gpus-per-node={}", shape.gpus)};
  if (!request.time.empty()) words.push_back("--time=" + request.time);
  if (request.chain > 1) words.push_back(formatted("--array=1-{}%1", request.chain));
  if (!request.after.empty()) {
    words.push_back("--dependency=afterok:" + request.after);
    words.push_back("--kill-on-invalid-dep=yes");
  }
  words.insert(words.end(), request.sbatch.begin(), request.sbatch.end());
  words.push_back(script_of(request, home).string());
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), {"--run", request.run.string()});
  return words;
}

std::vector<SubmitProblem> scheduler_problems(const SubmitRequest& request,
                                              const std::vector<NodeKind>& kinds) {
  const std::string partition = partition_of(request);
  const auto kind = choose_kind(kinds, partition);
  if (!kind) {
    return {{"partition-absent",
             partition.empty() ? std::string("this cluster has no default partition")
                               : formatted("this cluster has no partition {}", partition),
             "give --sbatch --partition=NAME (sinfo -s lists them)"}};
  }
  std::vector<SubmitProblem> problems;
  if (request.nodes > kind->nodes) {
    problems.push_back({"nodes-few",
                        formatted("{} nodes are asked for, partition {} has {} that are up",
                                  request.nodes, kind->partition, kind->nodes),
                        "give fewer --nodes, or another partition"});
  }
  if (request.time.empty()) return problems;
  const auto asked_s = slurm_time_s(request.time);
  if (kind->limit_s && (!asked_s || *asked_s > *kind->limit_s)) {
    problems.push_back({"time-long",
                        formatted("--time {} is more than partition {} allows ({})", request.time,
                                  kind->partition, format_duration(*kind->limit_s)),
                        "give less, and --chain N for several jobs one after another"});
  }
  if (asked_s && *asked_s < kLeast_s) {
    problems.push_back({"time-short",
                        formatted("--time {} is less than a start and a save take ({})",
                                  request.time, format_duration(kLeast_s)),
                        "give more"});
  }
  return problems;
}

Frozen freeze(const SubmitRequest& request, const std::filesystem::path& home,
              const std::filesystem::path& bin) {
  const fs::path all = RunFolder{request.run}.submit();
  int number = 1;  // another job of this run may wait with what is there
  while (fs::exists(all / cat(number))) ++number;
  std::error_code code;
  const fs::path place = fs::absolute(all / cat(number), code);
  const fs::path programs = place / "build/release/bin";  // where env.sh looks
  make_folders(programs);
  for (const char* program : {"trireme", "trireme-data"}) {
    if (fs::exists(bin / program, code)) copy_into(bin / program, programs / program);
  }
  copy_into(home / "slurm", place / "slurm");
  Frozen frozen{place, request.arguments};
  int file = 0;
  const auto keep = [&](const std::string& from) {
    const fs::path copy = place / formatted("config-{}.toml", ++file);
    copy_into(from, copy);
    return copy.string();
  };
  for (std::size_t i = 0; i < frozen.arguments.size(); ++i) {
    std::string& word = frozen.arguments[i];
    if (word == "--config" && i + 1 < frozen.arguments.size()) {
      frozen.arguments[i + 1] = keep(frozen.arguments[i + 1]);
    } else if (word.starts_with("--config=")) {
      word = "--config=" + keep(word.substr(9));
    }
  }
  return frozen;
}

}  // namespace trireme
