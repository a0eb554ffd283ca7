#pragma once
#include <fstream>
#include <string>
#include <vector>

#include "job/run_directory.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::report {

/// Writes run directories by hand, so that each second of a run is known.
class RunFiles : public Scratch {
 protected:
  [[nodiscard]] job::RunDirectory run(const std::string& name = "run") const { return {at(name)}; }

  static void write(const std::filesystem::path& file, const std::vector<std::string>& lines) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    for (const std::string& line : lines) out << line << '\n';
  }

  /// Writes the event log. `events`: the members of each event after `seq`.
  static void write_events(const job::RunDirectory& folder,
                           const std::vector<std::string>& events) {
    std::vector<std::string> lines;
    for (const std::string& event : events)
      lines.push_back("{\"seq\":" + std::to_string(lines.size() + 1) + "," + event + "}");
    write(folder.event_log(), lines);
  }

  static std::string start(int leg, double time, const std::string& job, int restart,
                           const std::string& resumed_from, const std::string& more = "") {
    return event(leg, time, "start") + ",\"job\":\"" + job +
           "\",\"restart\":" + std::to_string(restart) +
           ",\"attempt\":0,\"nodes\":[\"n1\",\"n2\"],\"ranks\":2,\"hashes\":{},\"resumed_from\":" +
           resumed_from + more;
  }

  static std::string event(int leg, double time, const std::string& name) {
    return "\"time\":" + std::to_string(time) + ",\"leg\":" + std::to_string(leg) +
           ",\"event\":\"" + name + "\"";
  }

  /// Writes a run of two attempts of job 17 that needs 231 s. It was submitted at 1000 s. Attempt 1
  /// failed in step 5, when the newest checkpoint was that of step 2.
  void write_known_run() const {
    const job::RunDirectory folder = run();
    write(folder.submit() / "1" / "job.json", {R"({"job":"17","chain":1,"time":1000})"});
    write(folder.status(), {R"({"state":"done","exit_code":0,"step":5,"committed":5})"});
    write(folder.config(), {"[train]", "steps = 5", "[optim]", "lr = 0.5"});
    write_events(
        folder,
        {start(1, 1112, "17", 0, "null", R"(,"job_start":1100,"age_s":2)"),
         event(1, 1125, "ready") + R"(,"step":1,"start_s":15)",
         event(1, 1138, "commit") + R"(,"step":2)",
         event(1, 1155, "verdict") +
             R"(,"rank":1,"host":"n2","kind":"error","exit_code":4,"step":4,"message":"disk full","at":1152)",
         event(1, 1160, "decision") +
             R"(,"verdict":"requeue","why":"a rank failed","exit_code":4,"root_cause":{"rank":1,"host":"n2","kind":"error","message":"disk full"},"step_before":-1,"step_after":2,"failures_in_a_row":1,"exclude":[],"job":"17","restart":0,"attempt":0)",
         start(2, 1206, "17", 1, "2", R"(,"job_start":1200,"age_s":1)"),
         event(2, 1215, "ready") + R"(,"step":3,"start_s":10)",
         event(2, 1229, "commit") + R"(,"step":5)",
         event(2, 1231, "end") + R"(,"state":"done","exit_code":0,"step":5)"});
    const auto step = [](int number, int attempt, int time, int seconds, const std::string& parts) {
      return "{\"step\":" + std::to_string(number) + ",\"time\":" + std::to_string(time) +
             ",\"tokens\":" + std::to_string(100 * number) +
             ",\"step_time_s\":" + std::to_string(seconds) +
             ",\"tokens_per_s\":" + std::to_string(100.0 / seconds) +
             ",\"mfu\":0.5,\"grad_norm\":1,\"lr\":0.1,\"skipped\":false,\"loss\":" +
             std::to_string(7 - number) + parts + ",\"attempt\":" + std::to_string(attempt) + "}";
    };
    write(
        folder.metrics(),
        {step(1, 0, 1125, 5, R"(,"data_wait_s":1,"comm_exposed_s":1,"save_s":0)"),
         step(2, 0, 1135, 10, R"(,"validation_s":4)"), step(3, 0, 1145, 10, R"(,"save_s":3)"),
         step(4, 0, 1150, 5, R"(,"comm_exposed_s":2)"), R"({"resumed_from":2,"attempt":1})",
         step(3, 1, 1215, 5, ""), step(4, 1, 1220, 5, ""), step(5, 1, 1225, 5, ""),
         R"({"eval_step":5,"valid_loss":2.5,"validation_s":2,"attempt":1})",
         R"({"end_step":5,"time":1230,"done":true,"steps":3,"tokens":300,"time_s":20,"attempt":1})"});
  }
};

}  // namespace trireme::report
