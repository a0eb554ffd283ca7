#include "train/run/compute_peak.hpp"

#include <ATen/Parallel.h>

#include <map>
#include <nlohmann/json.hpp>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/format_count.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "device/device.hpp"
#include "train/report/progress_line.hpp"

namespace trireme::train {
namespace {

/// Returns a text such as "2 ranks of AMD EPYC with 4 threads, 2 on the node". A stored peak is
/// valid only for attempts with the same text. Collective.
std::string describe(const RunRequest& run, at::Device device) {
  const std::string mine =
      formatted("{} with {}, {} on the node", device::device_name(device),
                counted(at::get_num_threads(), "thread"), run.ranks.launch.local_size);
  std::map<std::string, int> ranks;
  for (const std::string& one : comm::gather_texts(run.ranks.world, mine)) ++ranks[one];
  return joined(ranks, "; ", [](const auto& entry) {
    return formatted("{} of {}", counted(entry.second, "rank"), entry.first);
  });
}

/// Returns the list in RUN/peak.json: objects with "where", "dtype" and "flops".
Json kept_list(const job::RunDirectory& folder) {
  try {
    std::error_code absent;
    if (!std::filesystem::exists(folder.peak(), absent)) return Json::array();
    Json list = read_json(folder.peak(), {});
    if (list.is_array()) return list;
  } catch (const Error& error) {
    log::warn(formatted("{}: the compute peak is measured again", error.what()));
  }
  return Json::array();
}

double kept_flops(const job::RunDirectory& folder, const ComputePeak& peak) {
  for (const Json& one : kept_list(folder)) {
    if (!one.is_object() || one.value("where", Json()) != Json(peak.where) ||
        one.value("dtype", Json()) != Json(peak.dtype))
      continue;
    const Json flops = one.value("flops", Json());
    if (flops.is_number()) return flops.get<double>();
  }
  return 0;
}

}  // namespace

ComputePeak find_compute_peak(const RunRequest& run, const RunModel& model) {
  comm::Communicator& world = run.ranks.world;
  const at::Device device = model.registry.device();
  const at::ScalarType compute = device::precision_dtypes(run.config.train.precision).compute;
  ComputePeak peak;
  peak.where = describe(run, device);
  peak.dtype = run.config.train.precision;
  const double known = device::known_peak_flops(device, compute);
  const bool all_known = comm::all_reduce_value(world, std::int64_t{known > 0 ? 1 : 0},
                                                comm::ReduceOp::min, "peak") != 0;
  if (all_known) {
    peak.flops = comm::all_reduce_value(world, known, comm::ReduceOp::sum, "peak");
    peak.is_data_sheet = true;
    return peak;
  }
  double kept = 0;
  comm::all_or_none(world, [&] {
    if (world.rank() == 0) kept = kept_flops(run.folder, peak);
  });
  peak.flops = comm::all_reduce_value(world, kept, comm::ReduceOp::sum, "peak");
  if (peak.flops > 0) return peak;
  // All ranks must measure at the same time, because ranks of one node share clock rate and memory.
  world.barrier();
  const double mine = known > 0 ? known : device::measured_peak_flops(device, compute);
  peak.flops = comm::all_reduce_value(world, mine, comm::ReduceOp::sum, "peak");
  peak.is_new = true;
  return peak;
}

void store_compute_peak(const RunRequest& run, const ComputePeak& peak) {
  if (peak.where.empty() || run.ranks.world.rank() != 0) return;
  const char* source = peak.is_data_sheet ? "from the data sheet"
                       : peak.is_new      ? "measured now"
                                          : "as measured by an earlier start";
  log::info(formatted("the compute peak for MFU is {} in {}, {} ({})",
                      format_quantity(peak.flops, "FLOP/s"), peak.dtype, source, peak.where));
  if (!peak.is_new) return;
  Json list = kept_list(run.folder);
  list.push_back({{"where", peak.where}, {"dtype", peak.dtype}, {"flops", peak.flops}});
  if (const auto error =
          comm::capture([&] { write_file_atomic(run.folder.peak(), list.dump(2) + "\n"); }))
    log::warn(error->what());
}

}  // namespace trireme::train
