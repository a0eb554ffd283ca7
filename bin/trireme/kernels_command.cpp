#include <nlohmann/json.hpp>

#include "bin/trireme/commands.hpp"
#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "ops/cuda/report.hpp"

namespace trireme {
namespace {

struct KernelsSettings {
  std::string architectures = "sm_80,sm_90a,sm_100a";
  bool json = false;
};

int run(const KernelsSettings& settings) {
  const std::vector<ops::cuda::KernelFigures> all =
      ops::cuda::figures(split(settings.architectures, ','));
  if (settings.json) {
    Json json{{"kernels", Json::array()}};
    for (const ops::cuda::KernelFigures& one : all) {
      json["kernels"].push_back({{"name", one.name},
                                 {"arch", one.architecture},
                                 {"cubin_bytes", one.cubin_bytes},
                                 {"registers", one.registers},
                                 {"shared_bytes", one.shared_bytes},
                                 {"spill_bytes", one.spill_bytes},
                                 {"occupancy", one.occupancy}});
    }
    print(json_line(json));
    return kExitDone;
  }
  std::string text;
  for (const ops::cuda::KernelFigures& one : all)
    text += formatted(
        "{} {}: {} registers, {} bytes of shared memory, {} bytes of spills, occupancy {}, {} bytes\n",
        one.name, one.architecture, one.registers, one.shared_bytes, one.spill_bytes,
        number_text(one.occupancy), one.cubin_bytes);
  print(text);
  return kExitDone;
}

}  // namespace

void add_kernels_command(config::CommandLine& line) {
  const auto settings = std::make_shared<KernelsSettings>();
  line.command("kernels", "compile the CUDA kernels and print their registers and occupancy")
      .option("--arch", &settings->architectures, "LIST",
              "GPU architectures, separated by commas: sm_80 is A100, sm_90a H100, sm_100a B200")
      .flag("--json", settings->json, "print the figures as one JSON document on one line")
      .example("trireme kernels --arch sm_80")
      .run([settings] { return run(*settings); });
}

}  // namespace trireme
