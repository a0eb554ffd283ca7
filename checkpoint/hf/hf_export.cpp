#include "checkpoint/hf/hf_export.hpp"

#include <string>
#include <vector>

#include "checkpoint/exchange/whole_directory.hpp"
#include "checkpoint/exchange/whole_weights.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/export_files.hpp"
#include "checkpoint/hf/family_tensors.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/progress.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

}  // namespace

void export_hf(const Checkpoint& checkpoint, const fs::path& directory, comm::Communicator& world,
               const ExportOptions& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::bf16 && options.dtype != DType::f16) {
    fail(ErrorKind::usage, "export dtype {}, must be one of f32, bf16, f16",
         dtype_name(options.dtype));
  }
  const model::ModelConfig config =
      model_from_values(checkpoint.manifest().values, checkpoint.path().string());
  if (const std::string why = hf_family_problem(config); !why.empty()) {
    fail(ErrorKind::usage,
         "{}: no supported architecture of transformers has {}. Train a model without one of these "
         "values, or use the checkpoint itself with trireme generate and trireme serve.",
         checkpoint.path().string(), why);
  }
  std::vector<SafetensorsSource> sources = to_family(
      hf_family(config, family_value(checkpoint)), config, options.dtype,
      [&](DType dtype) { return whole_weights(checkpoint, options.base, config, dtype); });
  const double weight_bytes = static_cast<double>(size_of(options.dtype));
  Progress progress("export", config.num_parameters_wide() * weight_bytes / world.size(),
                    Progress::Unit::bytes);
  for (SafetensorsSource& source : sources)
    source.fill = [fill = std::move(source.fill), &progress](std::span<std::byte> bytes) {
      fill(bytes);
      progress.add(static_cast<double>(bytes.size()));
    };
  write_whole_directory(directory, world, [&](const fs::path& temporary) {
    write_checked_directory(temporary, sources, world, options.max_file_bytes);
    comm::on_first_rank(world, [&] {
      for (const auto& [name, content] : export_files(checkpoint, config, options.dtype))
        write_file_atomic(temporary / name, content);
      check_exported_config(temporary, config);
    });
  });
}

}  // namespace trireme::checkpoint
