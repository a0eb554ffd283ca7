#include "faults/forked_run.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include "comm/launch.hpp"
#include "comm/launchers.hpp"
#include "comm/liveness/network_settings.hpp"
#include "config/config_set.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "core/process/failpoints.hpp"
#include "core/process/stop_signals.hpp"
#include "core/timer.hpp"
#include "device/device.hpp"
#include "faults/socket_world.hpp"
#include "train/control/launch.hpp"
#include "train/run/run_task.hpp"
#include "train/start/run_keys.hpp"

namespace trireme::testing {
namespace {

train::RunStart configure(const ForkedRun& run, train::Task& task, train::RunConfig& config,
                          config::ConfigSet& keys, comm::Communicator& world) {
  Settings all{{"data.path", run.set.string()}, {"train.device", "cpu"},
               {"model.preset", "tiny"},        {"model.hidden_size", "16"},
               {"model.num_layers", "1"},       {"model.num_heads", "2"},
               {"model.num_kv_heads", "1"},     {"model.intermediate_size", "32"},
               {"model.max_seq_len", "64"},     {"model.dropout", "0.1"},
               {"train.micro_batch", "1"},      {"train.global_batch", "12"},
               {"train.threads", "1"},          {"train.hash_weights_every", "2"},
               {"train.comm_timeout_s", "30"},  {"optim.lr", "3e-3"},
               {"optim.warmup_steps", "2"}};
  all.insert(all.end(), run.settings.begin(), run.settings.end());
  for (const auto& [key, value] : all) keys.set(key, value, "test");
  train::RunStart start = train::read_start(config, keys, job::RunDirectory{run.folder}, world);
  train::finish_task_keys(task, "pretrain", config, keys, start);
  keys.finish();
  return start;
}

int rank_main(const ForkedRun& run, int rank, std::vector<Fd> row) {
  install_stop_signals(comm::launched_rank(environ));
  const comm::LaunchInfo launch{rank, run.ranks, rank, run.ranks, 0, 1, "localhost"};
  const comm::CommOptions options = train::comm_options_with_heartbeat(/*timeout_s=*/30);
  const auto world = make_socket_world(std::move(row), rank, options);
  comm::HeartbeatOptions beat;
  beat.interval_s = 0.05;
  beat.silence_s = 50;  // a loaded machine is not a hang
  std::optional<train::RankWatch> watch;
  const auto body = [&] {
    log::init({.rank = rank, .size = run.ranks});
    failpoints_init(rank);
    train::RunConfig config;
    const auto task = run.make_task();
    const auto keys = train::make_run_keys(config, task->section());
    train::RunStart start = configure(run, *task, config, *keys, *world);
    const job::RunDirectory folder{run.folder};
    const auto event_log = std::make_shared<job::EventLog>(folder.event_log());
    watch.emplace(*world, launch, folder, event_log, options.activity, beat,
                  comm::gather_network_settings(*world, launch.hostname));
    return train::run_task({"trireme",
                            "pretrain",
                            *task,
                            config,
                            *keys,
                            folder,
                            std::move(start),
                            {launch, *world, {}, options, {}},
                            event_log},
                           config);
  };
  const int code = comm::run_rank("trireme", body, [&](int failure) {
    if (watch) watch->announce_failure(failure);
  });
  watch.reset();
  log::flush();
  return code;
}

[[noreturn]] void become_rank(const ForkedRun& run, int rank, SocketMesh& mesh) {
  const std::string log = run.folder.string() + ".log";
  ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), STDERR_FILENO);
  if (!run.fault.empty()) {
    ::setenv("TRIREME_ALLOW_FAULTS", "1", 1);
    ::setenv("TRIREME_FAULT", run.fault.c_str(), 1);
  }
  ::_exit(rank_main(run, rank, mesh.take(rank)));  // exits without the destructors of the test
}

void prepare(const std::filesystem::path& folder, const std::string& arguments) {
  const std::string log = (folder / "prepare.log").string();
  const std::string command = TRIREME_DATA_PROGRAM " " + arguments + " > " + log + " 2>&1";
  if (std::system(command.c_str()) != 0)
    fail(ErrorKind::internal, "{}\n{}", command, read_file(log));
}

}  // namespace

std::filesystem::path make_set(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::string corpus = (folder / "corpus.jsonl").string();
  const std::string tokenizer = (folder / "tokenizer").string();
  const std::string set = (folder / "set").string();
  prepare(folder, "synth --documents 300 --seed 5 --output " + corpus);
  prepare(folder, "tokenizer train --vocab-size 400 --input " + corpus + " --output " + tokenizer);
  prepare(folder, "pack --kind pretrain --seq-len 32 --tokenizer " + tokenizer + " --input " +
                      corpus + " --output " + set);
  return set;
}

void prepare_forks() {
  at::set_num_threads(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    device::measured_peak_flops(at::kCPU, type);
}

RanksEnd run_forked(const ForkedRun& run, double limit_s) {
  std::filesystem::create_directories(run.folder.parent_path());
  std::filesystem::remove(run.folder.string() + ".log");
  std::fflush(nullptr);  // otherwise every rank would print what is still in the buffers
  std::vector<pid_t> pids;
  {
    SocketMesh mesh(run.ranks);
    for (int rank = 0; rank < run.ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid < 0) fail(ErrorKind::internal, "fork failed");
      if (pid == 0) become_rank(run, rank, mesh);
      pids.push_back(pid);
    }
  }
  RanksEnd end{std::vector<int>(pids.size(), -1), 0, false, ""};
  const Timer timer;
  std::optional<Timer> since_first;
  std::size_t running = pids.size();
  while (running > 0) {
    for (std::size_t rank = 0; rank < pids.size(); ++rank) {
      int status = 0;
      if (end.codes[rank] != -1 || ::waitpid(pids[rank], &status, WNOHANG) != pids[rank]) continue;
      end.codes[rank] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (!since_first) since_first.emplace();
      end.after_first_s = since_first->seconds();
      --running;
    }
    if (running > 0 && timer.seconds() > limit_s && !end.timed_out) {
      end.timed_out = true;
      for (std::size_t rank = 0; rank < pids.size(); ++rank) {
        if (end.codes[rank] == -1) ::kill(pids[rank], SIGKILL);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  end.log = read_file(run.folder.string() + ".log");
  return end;
}

}  // namespace trireme::testing
