#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Nodes of one kind in one partition: a line of sinfo.
struct NodeKind {
  std::string partition;
  bool is_default = false;
  std::int64_t nodes = 0;  // that are not down
  std::int64_t cpus = 0;   // of each
  std::int64_t memory_mb = 0;
  std::int64_t gpus = 0;
  std::string gpu_type;           // "a100"; "" where Slurm has no type
  std::optional<double> limit_s;  // longest job; none: any
};

/// The arguments of sinfo whose output read_nodes() reads.
std::vector<std::string> sinfo_words();

/// Lines that are not of that form are passed over.
std::vector<NodeKind> read_nodes(std::string_view sinfo);

/// The kind for a job: of `partition` ("" : the default one), with GPUs if any has some, the one with
/// most nodes. None: there is no such partition.
std::optional<NodeKind> choose_kind(const std::vector<NodeKind>& kinds,
                                    const std::string& partition);

/// The most that a card of this type is sold with, bytes; none: a type not known here.
/// Source: Nvidia's data sheets, 2025.
std::optional<std::int64_t> memory_of_gpu(std::string_view type);

/// Slurm's times: "30", "30:00", "4:00:00", "2-12", "2-12:00:00", "infinite" (none). Seconds; nullopt
/// inside for no limit. Throws Error(usage) for another text.
std::optional<double> slurm_time_s(std::string_view text);

}  // namespace trireme
