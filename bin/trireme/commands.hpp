#pragma once
#include <functional>
#include <string>

#include "comm/launch.hpp"
#include "config/command_line.hpp"

/// Functions that declare the commands of trireme on the CommandLine. The training commands are in
/// train_command.hpp.
namespace trireme::comm {

class Activity;

}  // namespace trireme::comm

namespace trireme {

/// Commands of all ranks take the launch, which must outlive the CommandLine.
void add_generate_command(config::CommandLine& line, comm::Launch& launch);
void add_chat_command(config::CommandLine& line);
void add_serve_command(config::CommandLine& line, comm::Launch& launch);
void add_config_show_command(config::CommandLine& line);
void add_verify_layout_command(config::CommandLine& line, comm::Launch& launch);
void add_bench_generate_command(config::CommandLine& line);
/// `activity` is the activity of the ranks of `launch`.
void add_bench_step_command(config::CommandLine& line, comm::Launch& launch,
                            comm::Activity& activity);
void add_bench_ladder_command(config::CommandLine& line, comm::Launch& launch);
void add_bench_matmul_command(config::CommandLine& line);
void add_bench_collectives_command(config::CommandLine& line, comm::Launch& launch);
/// `activity` is the activity of the ranks of `launch`.
void add_bench_scaling_command(config::CommandLine& line, comm::Launch& launch,
                               comm::Activity& activity);
void add_eval_command(config::CommandLine& line, comm::Launch& launch);
void add_kernels_command(config::CommandLine& line);
void add_job_commands(config::CommandLine& line);
void add_doctor_command(config::CommandLine& line, comm::Launch& launch);
void add_dpo_reference_command(config::CommandLine& line, comm::Launch& launch);
void add_plan_command(config::CommandLine& line);
void add_plan_schedule_command(config::CommandLine& line);
void add_report_command(config::CommandLine& line);
/// `program` is argv[0].
void add_submit_command(config::CommandLine& line, comm::Launch& launch,
                        const std::string& program);

/// Returns the communicator of all ranks; called when a command runs.
using WorldSource = std::function<comm::Communicator&()>;

/// Removes the OpenMP setting that early_start.cpp added from this process's environment, so that
/// programs started from here (sbatch) do not inherit it. Call it in main, before other threads
/// exist.
void forget_short_spin() noexcept;

/// `checkpoint ...`, `bench checkpoint`, `plan-interval`, `export` and `import`.
void add_checkpoint_commands(config::CommandLine& line, const WorldSource& world);

}  // namespace trireme
