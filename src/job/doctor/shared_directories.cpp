#include "job/doctor/shared_directories.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/manifest.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/hash/xxh3.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"
#include "job/run_directory.hpp"

namespace trireme::job {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhereDirectories = "the directories that a rank sees";
// Network file systems cache for some seconds that a file does not exist.
constexpr double kAppears_s = 10;
constexpr double kLittleSpace = 1e9;
constexpr double kFewFiles = 1000;

fs::path nearest_directory(fs::path place) {
  std::error_code code;
  place = fs::absolute(place, code);
  while (!fs::is_directory(place, code) && place.has_relative_path()) place = place.parent_path();
  return place;
}

std::string file_name(const std::string& nonce, int rank) {
  return formatted("{}{}.{}", kProbePrefix, nonce, rank);
}

/// Waits for the file. Returns "" if it appears, else an error message.
std::string wait_for_file(const fs::path& file) {
  const Timer timer;
  std::error_code code;
  do {
    if (fs::exists(file, code)) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (timer.seconds() < kAppears_s);
  return formatted("a file of rank 0's in {} does not appear within {} s",
                   file.parent_path().string(), kAppears_s);
}

std::string pack(const DirectoryFacts& facts) {
  return json_text({{"seen", facts.seen},
                    {"written", facts.written},
                    {"absent_data", facts.absent_data},
                    {"config", facts.config}});
}

DirectoryFacts unpack(const std::string& text) {
  const Json json = parse_json(text, kWhereDirectories);
  return {json_get<std::string>(json, "seen", kWhereDirectories),
          json_get<std::string>(json, "written", kWhereDirectories),
          json_get<std::string>(json, "absent_data", kWhereDirectories),
          json_get<std::string>(json, "config", kWhereDirectories)};
}

/// Returns the size of the newest checkpoint; 0 without one.
double checkpoint_bytes(const RunDirectory& run) {
  const auto steps = checkpoint::list_steps(run.checkpoints());
  double total = 0;
  if (steps.empty()) return total;
  std::error_code code;
  for (const fs::path& file : checkpoint::list_directory(
           run.checkpoints() / checkpoint::step_directory_name(steps.front()))) {
    const std::uintmax_t size = fs::file_size(file, code);
    if (!code) total += static_cast<double>(size);
  }
  return total;
}

void check_space(const SharedDirectories& directories, std::vector<Finding>& findings) {
  const fs::path folder = nearest_directory(directories.run);

  struct statvfs info {};

  if (::statvfs(folder.c_str(), &info) != 0) return;
  const double free_bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  const double one = checkpoint_bytes(RunDirectory{directories.run});
  using enum Finding::Severity;
  const std::string where = folder.string();
  if (free_bytes < one) {
    findings.push_back({"space-none", error, where,
                        formatted("{} are free, a checkpoint takes {}", format_bytes(free_bytes),
                                  format_bytes(one)),
                        "delete something (trireme checkpoint prune), or give another --run"});
  } else if (free_bytes < std::max(kLittleSpace, 3 * one)) {
    findings.push_back({"space-little", warning, where,
                        formatted("only {} are free", format_bytes(free_bytes)),
                        "delete something (trireme checkpoint prune), or give another --run"});
  }
  // Some file systems do not limit the number of files and report 0.
  if (info.f_files > 0 && static_cast<double>(info.f_favail) < kFewFiles) {
    findings.push_back({"files-none-left", warning, where,
                        formatted("only {} more files can be made", info.f_favail),
                        "delete some: each checkpoint has a file per rank and a few more"});
  }
}

void add_ranks(std::vector<Finding>& findings, const std::vector<RankDevice>& ranks,
               const std::vector<std::size_t>& which, Finding finding) {
  if (which.empty()) return;
  std::set<std::string> hosts;
  for (const std::size_t rank : which) hosts.insert(ranks[rank].host);
  finding.where = ranks_text(ranks, which);
  finding.hosts = {hosts.begin(), hosts.end()};
  findings.push_back(std::move(finding));
}

/// Returns the indices of the ranks with facts that fulfil the condition.
template <class Condition>
std::vector<std::size_t> ranks_with(const std::vector<DirectoryFacts>& all, Condition condition) {
  std::vector<std::size_t> which;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (condition(all[rank])) which.push_back(rank);
  return which;
}

std::vector<Finding> findings_of_run(const std::vector<DirectoryFacts>& all,
                                     const std::vector<RankDevice>& ranks) {
  using enum Finding::Severity;
  const auto cannot_see =
      ranks_with(all, [](const DirectoryFacts& one) { return !one.seen.empty(); });
  const auto cannot_write =
      ranks_with(all, [](const DirectoryFacts& one) { return !one.written.empty(); });
  std::vector<Finding> findings;
  if (!cannot_see.empty()) {
    add_ranks(findings, ranks, cannot_see,
              {"folder-not-shared", error, "", all[cannot_see.front()].seen,
               "give a --run on a file system that all nodes share"});
    // If no other host sees the file, the directory is local to the host of rank 0. Then it does
    // not help to exclude nodes.
    std::vector<std::string>& blind = findings.back().hosts;
    const bool anywhere = std::ranges::any_of(ranks, [&](const RankDevice& rank) {
      return rank.host != ranks[0].host && std::ranges::find(blind, rank.host) == blind.end();
    });
    if (!anywhere) blind.clear();
  }
  if (!cannot_write.empty())
    add_ranks(findings, ranks, cannot_write,
              {"folder-not-writable", error, "", all[cannot_write.front()].written,
               "give a --run where you may write"});
  return findings;
}

std::vector<Finding> findings_of_directories(const std::vector<DirectoryFacts>& all,
                                             const std::vector<RankDevice>& ranks,
                                             const SharedDirectories& directories) {
  using enum Finding::Severity;
  const auto without_data =
      ranks_with(all, [](const DirectoryFacts& one) { return !one.absent_data.empty(); });
  const auto other_config =
      ranks_with(all, [&](const DirectoryFacts& one) { return one.config != all[0].config; });
  std::vector<Finding> findings = findings_of_run(all, ranks);
  if (!without_data.empty())
    add_ranks(findings, ranks, without_data,
              {"data-absent", error, "",
               formatted("{} does not exist", all[without_data.front()].absent_data),
               without_data.size() == all.size()
                   ? "give a --data that trireme-data pack wrote"
                   : "give a --data on a file system that all nodes share"});
  add_ranks(
      findings, ranks, other_config,
      {"config-differs", error, "",
       formatted("{} is not what rank 0 sees", RunDirectory{directories.run}.config().string()),
       "check the directory on that host: it may be a local directory of the same name (give a --run that all share), or a stale cache of the file system (wait, or exclude the node)"});
  if (!directories.run.empty()) check_space(directories, findings);
  return findings;
}

/// One rank of each node looks for a file of rank 0 in the run directory, and writes a file there.
/// Returns the error of this write; nullopt if this rank wrote it or did not try. Collective.
std::optional<Error> look_at_run(comm::Communicator& world, const comm::LaunchInfo& launch,
                                 const fs::path& run, DirectoryFacts& facts) {
  const bool is_first = world.rank() == 0;
  const std::string nonce =
      comm::broadcast_text(world, is_first ? formatted("{}-{}", launch.hostname, ::getpid()) : "");
  const fs::path folder =
      comm::broadcast_text(world, is_first ? nearest_directory(run).string() : "");
  const fs::path mine = folder / file_name(nonce, world.rank());
  std::optional<Error> refused;
  const auto write = [&] {
    refused = comm::capture([&] { write_file_atomic(mine, nonce); });
    if (refused) facts.written = refused->what();
  };
  if (is_first) write();
  const bool is_there = comm::broadcast_text(world, facts.written).empty();
  const bool looks = launch.local_rank == 0;
  if (looks && !is_first) {
    if (is_there) facts.seen = wait_for_file(folder / file_name(nonce, 0));
    if (facts.seen.empty()) write();
  }
  world.barrier();
  std::error_code code;
  if (looks) fs::remove(mine, code);
  return refused;
}

std::vector<DirectoryFacts> gather(comm::Communicator& world, const DirectoryFacts& facts) {
  std::vector<DirectoryFacts> all;
  for (const std::string& text : comm::gather_texts(world, pack(facts)))
    all.push_back(unpack(text));
  return all;
}

}  // namespace

std::vector<Finding> check_run_is_shared(comm::Communicator& world, const comm::LaunchInfo& launch,
                                         const std::vector<RankDevice>& ranks,
                                         const std::filesystem::path& run) {
  DirectoryFacts facts;
  const auto refused = look_at_run(world, launch, run, facts);
  // A file system that is full or fails now may accept a later write.
  if (refused && refused->kind() == ErrorKind::resource) facts.written.clear();
  const auto all = gather(world, facts);
  return findings_of_run(all, ranks);
}

std::vector<Finding> check_directories(comm::Communicator& world, const comm::LaunchInfo& launch,
                                       const std::vector<RankDevice>& ranks,
                                       const SharedDirectories& directories) {
  DirectoryFacts facts;
  std::error_code code;
  if (!directories.run.empty()) {
    (void)look_at_run(world, launch, directories.run, facts);
    const fs::path config = RunDirectory{directories.run}.config();
    if (fs::exists(config, code))
      (void)comm::capture([&] { facts.config = xxh3_128_hex(read_file(config)); });
  }
  for (const fs::path& set : directories.data) {
    if (!fs::exists(set, code)) facts.absent_data = set.string();
  }
  const auto all = gather(world, facts);
  return world.rank() == 0 ? findings_of_directories(all, ranks, directories)
                           : std::vector<Finding>{};
}

}  // namespace trireme::job
