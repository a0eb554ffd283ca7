#pragma once
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "core/files/file.hpp"
#include "data_prep/bench/synth.hpp"
#include "data_prep/pack/pack.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"
#include "unit/data/small_set.hpp"

/// A corpus, a tokenizer trained on it, and packs of it.
namespace trireme::testing {

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string tokenizer_of(const std::filesystem::path& folder, const std::string& corpus) {
  data_prep::TrainTokenizerConfig config;
  config.inputs = {corpus};
  config.output = (folder / "tok").string();
  config.vocab_size = 400;
  config.on_bad_text = "skip";
  config.progress = "none";
  data_prep::train_tokenizer(config);
  return config.output;
}

inline data_prep::PackConfig pack_config(const std::string& input,
                                         const std::filesystem::path& output) {
  data_prep::PackConfig config;
  config.inputs = {input};
  config.output = output.string();
  config.seq_len = 64;
  config.unit_bytes = 20'000;
  config.threads = 1;
  config.progress = "none";
  return config;
}

inline data_prep::PackReport pack_with(data_prep::PackConfig config, const std::string& tokenizer,
                                       comm::Communicator* world) {
  config.tokenizer = tokenizer;
  return data_prep::pack(config, world);
}

/// Returns the content of all files below `folder` by relative name.
inline std::map<std::string, std::string> files_below(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files[std::filesystem::relative(entry.path(), folder).string()] = read_file(entry.path());
  }
  return files;
}

}  // namespace trireme::testing
