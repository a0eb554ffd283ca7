#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bin/trireme/commands.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "core/timer.hpp"
#include "report/html_report.hpp"
#include "report/run_json.hpp"
#include "report/run_report.hpp"
#include "report/summary.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {
namespace {

constexpr const char* kReportFile = "report.html";

struct ReportSettings {
  std::vector<std::string> runs;
  std::string output = kReportFile;
  std::string compare;
  bool json = false;
};

report::RunReport read_one(const std::string& run) {
  return report::read_run(run, unix_time_s(),
                          [](const std::string& job) { return scheduler::scheduler().times(job); });
}

int write_report(const ReportSettings& settings) {
  std::vector<report::RunReport> runs;
  for (const std::string& run : settings.runs) runs.push_back(read_one(run));
  if (!settings.compare.empty()) {
    report::RunReport base = read_one(settings.compare);
    for (report::RunReport& run : runs) report::compare(run, base);
    const bool is_listed = std::ranges::any_of(settings.runs, [&](const std::string& run) {
      return std::filesystem::equivalent(run, settings.compare);
    });
    if (!is_listed) runs.push_back(std::move(base));
  }
  if (settings.json) print(json_line(report::to_json(runs)));
  if (settings.json && settings.output == kReportFile) return kExitDone;
  const std::string html = report::html_report(runs, unix_time_s());
  write_file_atomic(settings.output, html);
  if (settings.json) return kExitDone;
  for (const report::RunReport& run : runs) {
    print(report::summary_of(run) + "\n" + report::card_text(run.evaluations));
    for (const std::string& note : run.notes) print(formatted("  note: {}\n", note));
  }
  print(formatted("report: {} ({})\n", settings.output,
                  format_bytes(static_cast<double>(html.size()))));
  return kExitDone;
}

}  // namespace

void add_report_command(config::CommandLine& line) {
  const auto settings = std::make_shared<ReportSettings>();
  line.command("report", "write an HTML report on runs: loss, throughput, goodput, failures")
      .option("--output,-o", &settings->output, "FILE",
              "HTML file to write; with --json, only if another name is given")
      .option("--compare", &settings->compare, "RUN",
              "run on one rank; the report adds the speed-up over this run")
      .flag("--json", settings->json, "print the values of the report as JSON")
      .positional("RUN", &settings->runs, "run directories")
      .example("trireme report runs/first")
      .example("trireme report runs/first runs/second --output runs/both.html")
      .example("trireme report runs/first --json")
      .run([settings] { return write_report(*settings); });
}

}  // namespace trireme
