#include "train/state/fingerprint.hpp"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <link.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "device/device.hpp"

namespace trireme::train {
namespace {

/// Libraries with arithmetic, or an order of sums, that may change with the version.
constexpr std::array<std::string_view, 5> kLibraries{"libtorch_cpu", "libc10.", "libmpi", "libgomp",
                                                     "libm.so"};
/// GPU libraries. A CPU process loads them, too, if the machine has a driver.
constexpr std::array<std::string_view, 6> kGpuLibraries{"libtorch_cuda", "libc10_cuda", "libnccl",
                                                        "libcuda",       "libcublas",   "libcudnn"};

bool begins_with_one(std::string_view name, std::span<const std::string_view> starts) {
  return std::any_of(starts.begin(), starts.end(),
                     [&](std::string_view one) { return name.starts_with(one); });
}

struct Loaded {
  bool with_gpu;
  std::vector<std::string> names;  // with their sizes
};

int collect(dl_phdr_info* info, std::size_t, void* data) {
  auto& loaded = *static_cast<Loaded*>(data);
  const std::filesystem::path path = info->dlpi_name;
  const std::string name = path.filename().string();
  const bool counts = begins_with_one(name, kLibraries) ||
                      (loaded.with_gpu && begins_with_one(name, kGpuLibraries));
  std::error_code code;
  const auto size = std::filesystem::file_size(path, code);
  if (counts && !code) loaded.names.push_back(formatted("{}:{}", name, size));
  return 0;
}

std::string loaded_libraries(at::Device device) {
  Loaded loaded{device.is_cuda(), {}};
  dl_iterate_phdr(collect, &loaded);
  std::sort(loaded.names.begin(), loaded.names.end());
  std::string text;
  for (const std::string& name : loaded.names) text += name + "\n";
  return xxh3_128_hex(text);
}

/// Names the ranks with an entry of `all` that differs from the entry of rank 0; "" if all agree.
std::string others(const std::vector<std::uint64_t>& all) {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) ranks.push_back(rank);
  }
  return joined(ranks, ", ");
}

std::string differing_ranks(comm::Communicator& world, std::string_view text) {
  return others(comm::all_gather_value(world, xxh3_64(text), "fingerprint"));
}

std::string to_text(const Fingerprint& fingerprint) {
  std::string text;
  for (const auto& [key, value] : fingerprint) text += key + "=" + value + "\n";
  return text;
}

Fingerprint parse(const std::string& text) {
  Fingerprint result;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    const std::size_t equals = text.find('=', at);
    result[text.substr(at, equals - at)] = text.substr(equals + 1, end - equals - 1);
    at = end + 1;
  }
  return result;
}

}  // namespace

Fingerprint take_fingerprint(comm::Communicator& world, at::Device device,
                             const std::string& layout) {
  Fingerprint mine{{"torch", TORCH_VERSION},
                   {"libraries", loaded_libraries(device)},
                   {"threads", cat(at::get_num_threads())},
                   {"isa", at::get_cpu_capability()},
                   {"device", device::device_name(device)},
                   {"layout", layout}};
  std::string binary;
  comm::all_or_none(world, [&] { binary = hash_file("/proc/self/exe"); });
  const std::string other_binaries = differing_ranks(world, binary);
  const std::string other_machines = differing_ranks(world, to_text(mine));
  comm::all_or_none(world, [&] {
    if (!other_binaries.empty() && world.rank() == 0)
      fail(ErrorKind::usage, "rank {} runs another trireme binary than rank 0", other_binaries);
  });
  if (!other_machines.empty() && world.rank() == 0) {
    log::warn(formatted(
        "rank {} differs from rank 0 in libraries, threads, instruction set or device: another placement of the ranks may change the last bits",
        other_machines));
  }
  mine["binary"] = binary;
  return parse(comm::broadcast_text(world, to_text(mine)));
}

std::optional<std::string> fingerprint_changes(const Fingerprint& before, const Fingerprint& now) {
  std::vector<std::string> changes;
  for (const auto& [key, value] : now) {
    const auto saved = before.find(key);
    if (saved == before.end()) return std::nullopt;
    if (saved->second == value) continue;
    const bool hash = key == "binary" || key == "libraries";
    changes.push_back(hash ? key : formatted("{} {} (was {})", key, value, saved->second));
  }
  return joined(changes, ", ");
}

}  // namespace trireme::train
