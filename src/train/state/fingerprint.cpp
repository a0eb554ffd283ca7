#include "train/state/fingerprint.hpp"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <link.h>
#include <torch/headeronly/version.h>

#ifdef TRIREME_HAVE_CUDA
#include <ATen/cuda/CUDAContext.h>
#endif

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "core/log.hpp"

namespace trireme {
namespace {

/// Libraries whose arithmetic or order of sums may change with their version.
constexpr std::array<std::string_view, 9> kLibraries{"libtorch", "libc10",  "libmpi",
                                                     "libnccl",  "libcuda", "libcublas",
                                                     "libcudnn", "libgomp", "libm.so"};

int collect(dl_phdr_info* info, std::size_t, void* data) {
  const std::filesystem::path path = info->dlpi_name;
  const std::string name = path.filename().string();
  const bool counts = std::any_of(kLibraries.begin(), kLibraries.end(),
                                  [&](std::string_view one) { return name.starts_with(one); });
  std::error_code code;
  const auto size = std::filesystem::file_size(path, code);
  if (counts && !code)
    static_cast<std::vector<std::string>*>(data)->push_back(formatted("{}:{}", name, size));
  return 0;
}

std::string loaded_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(collect, &names);
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return xxh3_128_hex(text);
}

std::string device_name(at::Device device) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) return at::cuda::getDeviceProperties(device.index())->name;
#endif
  TRIREME_ASSERT(device.is_cpu());
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "cpu";
}

/// Names the ranks whose entry of `all` is not rank 0's; "" if all agree.
std::string others(const std::vector<std::uint64_t>& all) {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) ranks.push_back(rank);
  }
  return joined(ranks, ", ");
}

std::string differing_ranks(Communicator& world, std::string_view text) {
  return others(all_gather_value(world, xxh3_64(text), "fingerprint"));
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

Fingerprint take_fingerprint(Communicator& world, at::Device device, const std::string& layout) {
  Fingerprint mine{{"torch", TORCH_VERSION},
                   {"libraries", loaded_libraries()},
                   {"threads", cat(at::get_num_threads())},
                   {"isa", at::get_cpu_capability()},
                   {"device", device_name(device)},
                   {"layout", layout}};
  std::string binary;
  all_or_none(world, [&] { binary = hash_file("/proc/self/exe"); });
  const std::string strangers = differing_ranks(world, binary);
  const std::string unlike = differing_ranks(world, to_text(mine));
  all_or_none(world, [&] {
    if (!strangers.empty() && world.rank() == 0)
      fail(ErrorKind::usage, "rank {} runs another trireme binary than rank 0", strangers);
  });
  if (!unlike.empty() && world.rank() == 0) {
    log::warn(formatted(
        "rank {} differs from rank 0 in libraries, threads, instruction set or device: another placement of the ranks may give other last bits",
        unlike));
  }
  mine["binary"] = binary;
  return parse(broadcast_text(world, to_text(mine)));
}

void put_fingerprint(std::map<std::string, std::string>& values, const Fingerprint& fingerprint) {
  for (const auto& [key, value] : fingerprint) values["fingerprint." + key] = value;
}

std::optional<std::string> fingerprint_changes(const std::map<std::string, std::string>& values,
                                               const Fingerprint& now) {
  std::vector<std::string> changes;
  for (const auto& [key, value] : now) {
    const auto saved = values.find("fingerprint." + key);
    if (saved == values.end()) return std::nullopt;
    if (saved->second == value) continue;
    const bool hash = key == "binary" || key == "libraries";
    changes.push_back(hash ? key : formatted("{} {} (was {})", key, value, saved->second));
  }
  return joined(changes, ", ");
}

}  // namespace trireme
