/// A shared library with the functions of NVML that EnergyCounters uses, for one GPU. Each reading
/// of the energy adds 2,500 mJ. The clocks are 1,755 MHz (multiprocessors) and 2,619 MHz (memory).
/// Source of the signatures: NVIDIA, "NVML API Reference".

#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotFound = 6;
int gpu = 0;
unsigned long long energy_mj = 1000;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return kSuccess;
}

int nvmlShutdown() {
  return kSuccess;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strcmp(uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff") != 0) return kNotFound;
  *device = &gpu;
  return kSuccess;
}

int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* energy) {
  if (device != &gpu) return kNotFound;
  *energy = energy_mj;
  energy_mj += 2500;
  return kSuccess;
}

int nvmlDeviceGetClockInfo(void* device, int type, unsigned int* mhz) {
  if (device != &gpu) return kNotFound;
  *mhz = type == 1 ? 1755 : 2619;
  return kSuccess;
}
}
