#include "device/energy_counters.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <utility>

#include "core/join.hpp"

namespace trireme::device {
namespace {

std::string first_line(const std::filesystem::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::uint64_t number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

/// Returns the UUID in the form of NVML from 32 hexadecimal digits.
std::string nvml_uuid(const std::string& digits) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) text += '-';
    text += digits[i];
  }
  return text;
}

/// The functions of NVML that EnergyCounters needs. All return 0 for success.
class Nvml {
 public:
  using Device = void*;

  /// Returns null if the library or one of the functions is missing or the start fails.
  static std::shared_ptr<const Nvml> open(const std::string& file) {
    std::shared_ptr<Nvml> nvml(new Nvml(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)));
    int (*start)() = nullptr;
    if (!nvml->find("nvmlInit_v2", start) || !nvml->find("nvmlShutdown", nvml->shutdown_) ||
        !nvml->find("nvmlDeviceGetHandleByUUID", nvml->handle_by_uuid_) ||
        !nvml->find("nvmlDeviceGetTotalEnergyConsumption", nvml->energy_))
      return nullptr;
    nvml->find("nvmlDeviceGetClockInfo", nvml->clock_);  // optional
    nvml->started_ = start() == 0;
    return nvml->started_ ? nvml : nullptr;
  }

  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  ~Nvml() {
    if (started_) shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }

  [[nodiscard]] std::optional<Device> device(const std::string& uuid) const {
    Device device = nullptr;
    if (handle_by_uuid_(uuid.c_str(), &device) != 0) return std::nullopt;
    return device;
  }

  /// Returns the energy of a GPU since its driver was loaded, in millijoules.
  [[nodiscard]] std::optional<std::uint64_t> millijoules(Device device) const {
    unsigned long long energy = 0;
    if (energy_(device, &energy) != 0) return std::nullopt;
    return energy;
  }

  /// Returns the clock of the multiprocessors.
  [[nodiscard]] std::optional<double> clock_mhz(Device device) const {
    constexpr int kSmClock = 1;  // NVML_CLOCK_SM
    unsigned int mhz = 0;
    if (clock_ == nullptr || clock_(device, kSmClock, &mhz) != 0) return std::nullopt;
    return mhz;
  }

 private:
  explicit Nvml(void* library) : library_(library) {}

  template <class Function>
  bool find(const char* name, Function& function) const {
    if (library_ == nullptr) return false;
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    return function != nullptr;
  }

  void* library_;
  bool started_ = false;
  int (*shutdown_)() = nullptr;
  int (*handle_by_uuid_)(const char* uuid, Device* device) = nullptr;
  int (*energy_)(Device device, unsigned long long* millijoules) = nullptr;
  int (*clock_)(Device device, int type, unsigned int* mhz) = nullptr;
};

}  // namespace

EnergyCounters::EnergyCounters(const EnergySources& sources) {
  if (sources.reads_cpus) add_rapl(sources.powercap);
  if (!sources.gpu.empty()) add_nvml(sources);
}

void EnergyCounters::add(Counter counter) {
  const auto now = counter.read();
  if (!now) return;
  counter.before = *now;
  counters_.push_back(std::move(counter));
}

/// Adds the packages and their memory. The zones of cores are parts of their package, and the zone
/// psys contains the packages.
void EnergyCounters::add_rapl(const std::filesystem::path& powercap) {
  std::error_code code;
  std::vector<std::filesystem::path> zones;
  for (const auto& entry : std::filesystem::directory_iterator(powercap, code)) {
    // On some kernels intel-rapl-mmio shows the same packages again.
    if (entry.path().filename().string().starts_with("intel-rapl:")) zones.push_back(entry.path());
  }
  std::sort(zones.begin(), zones.end());
  for (const std::filesystem::path& zone : zones) {
    const std::string name = first_line(zone / "name");
    if (!name.starts_with("package") && name != "dram") continue;
    add({.name = name,
         .read = [file = zone / "energy_uj"] { return number_in(file); },
         .range = number_in(zone / "max_energy_range_uj").value_or(0)});
  }
}

void EnergyCounters::add_nvml(const EnergySources& sources) {
  const std::shared_ptr<const Nvml> nvml = Nvml::open(sources.nvml);
  if (!nvml) return;
  const auto device = nvml->device(nvml_uuid(sources.gpu));
  if (!device) return;
  add({.name = "GPU",
       .read = [nvml, device = *device] { return nvml->millijoules(device); },
       .unit_j = 1e-3});
  gpu_clock_mhz_ = [nvml, device = *device] { return nvml->clock_mhz(device); };
}

std::optional<double> EnergyCounters::gpu_clock_mhz() const {
  return gpu_clock_mhz_ ? gpu_clock_mhz_() : std::nullopt;
}

std::string EnergyCounters::names() const {
  return joined(counters_, ", ", [](const Counter& counter) { return counter.name; });
}

double EnergyCounters::take_joules() {
  double joules = 0;
  for (Counter& counter : counters_) {
    const auto now = counter.read();
    if (!now) {
      joules = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const bool has_wrapped = *now < counter.before;
    const std::uint64_t counts = *now - counter.before + (has_wrapped ? counter.range : 0);
    counter.before = *now;
    joules += static_cast<double>(counts) * counter.unit_j;
  }
  return joules;
}

}  // namespace trireme::device
