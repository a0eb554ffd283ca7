#pragma once
#include <string>

namespace trireme::checkpoint {

/// Input for the time between two checkpoints.
struct IntervalQuestion {
  double stall_s = 0;  // time that training waits for one save (`trireme bench checkpoint`)
  // time from a failure to the first new step: detection, queue, start, load
  double restart_s = 600;
  // mean time between failures of the job; 0: computed from devices and device_mtbf_h
  double mtbf_h = 0;
  double devices = 0;            // number of GPUs or nodes that device_mtbf_h refers to
  double device_mtbf_h = 50677;  // mean time between failures of one device
  double step_time_s = 0;        // 0: the result has no number of steps
};

struct IntervalAnswer {
  double mtbf_s = 0;
  double young_s = 0;  // sqrt(2 C M)
  double daly_s = 0;   // Daly's higher-order estimate; M if a save takes more than half of M
  // fraction of time lost in saves, repeated work and restarts if daly_s is the interval
  double waste = 0;
};

/// Computes the optimal interval between saves; C is stall_s and M is the mean time between
/// failures. The default device_mtbf_h comes from 419 unexpected interruptions of 16,384 GPUs in 54
/// days (Llama Team, "The Llama 3 Herd of Models", 2024, section 3.3.4). Throws Error(usage) for
/// values that are missing or out of range. Sources: Young, "A first order approximation to the
/// optimum checkpoint interval", CACM 17 (1974); Daly, "A higher order estimate of the optimum
/// checkpoint interval for restart dumps", FGCS 22 (2006), equation 37.
IntervalAnswer plan_interval(const IntervalQuestion& question);

/// Formats the answer for people.
std::string plan_interval_text(const IntervalQuestion& question);

}  // namespace trireme::checkpoint
