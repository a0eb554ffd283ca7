#include "checkpoint/maintenance/model_path.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include <nlohmann/json.hpp>

#include "checkpoint/exchange/lora.hpp"
#include "checkpoint/exchange/whole_directory.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "core/files/json.hpp"
#include "text/chat/chat_template.hpp"
#include "text/learn/tokenizer_writer.hpp"
#include "unit/checkpoint/hf_models.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"
#include "unit/checkpoint/torch_save.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

/// Makes a run, and next to it the Hugging Face directory of its model with this chat template.
void save_models(const TempDirectory& folder, const std::string& jinja) {
  save_model(folder / "run/checkpoints", small(true, true), 2);
  export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
  overwrite(folder / "hf/chat_template.jinja", jinja);
}

std::map<std::string, std::string> values_of(const fs::path& place) {
  return read_model_description(place).values;
}

/// Makes a LoRA run with adapters of all q_proj on the model that save_models makes.
void save_adapters(const fs::path& run, const fs::path& base) {
  comm::SelfCommunicator alone;
  const Checkpoint whole = Checkpoint::open(base);
  publish_weights(whole, run / "base", alone);
  const model::LoraConfig lora{
      .rank = 2, .alpha = 3, .dropout = 0, .targets = "q_proj", .rslora = false};
  StateDict state;
  put_model_values(small(true, true), state.values);
  put_lora_values(lora, state.values);
  state.values[kChatTemplateValue] = "chatml";
  state.values["config.checkpoint.resume"] = "auto";
  state.files["tokenizer.json"] = whole.file("tokenizer.json");
  state.files["tokenizer_config.json"] = whole.file("tokenizer_config.json");
  std::vector<std::vector<float>> storage;
  storage.reserve(16);
  for (const LoraAdapter& one : lora_adapters(lora, small(true, true))) {
    for (const auto& [half, shape] :
         {std::pair{"A", std::vector<std::int64_t>{2, one.in}}, {"B", {one.out, 2}}}) {
      std::vector<float>& values = storage.emplace_back(2 * (half[0] == 'A' ? one.in : one.out));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01F * static_cast<float>(i % 7);
      state.tensors.push_back({formatted("param/{}.lora_{}.weight", one.module, half), DType::f32,
                               shape, parallel::Slice::whole(shape),
                               std::as_writable_bytes(std::span(values)), true});
    }
  }
  save_checkpoint(run / "checkpoints", 5, state, alone, {});
}

TEST(ModelTemplate, IsKeptFromADirectoryThroughItsImport) {
  const std::map<std::string, std::string> cases{
      {text::chat_template("minimind-v3").jinja(), "minimind-v3"},
      {"{{ '<|im_start|>' }}{%- if enable_thinking %}", "qwen3"},  // not supported: no endif
      {"{{ '<|im_start|>' ~ enable_thinking }}", "custom-"},
      {"[INST] {{ messages }} [/INST]", "custom-"}};
  for (const auto& [jinja, name] : cases) {
    const TempDirectory folder;
    save_models(folder, jinja);
    import_command({.hf = folder / "hf", .output = folder / "back"});
    for (const char* place : {"hf", "back"})
      EXPECT_TRUE(template_of(values_of(folder / place)).starts_with(name)) << place;
    const Checkpoint back = Checkpoint::open(folder / "back/checkpoints/step-000000000");
    EXPECT_EQ(back.file("chat_template.jinja"), jinja) << "as it was";
  }
  const TempDirectory folder;
  save_models(folder, "");
  EXPECT_EQ(template_of(values_of(folder / "hf")), "");
  EXPECT_EQ(template_of(values_of(folder / "run")), "") << "a run of an older version";
}

TEST(ModelTemplate, IsTheDefaultOfTheListOfOlderTransformers) {
  const Json config{{"chat_template",
                     {{{"name", "tools"}, {"template", "x"}},
                      {{"name", "default"}, {"template", text::chat_template("llama3").jinja()}}}}};
  EXPECT_EQ(template_of_files({{"tokenizer_config.json", config.dump()}}), "llama3");
  EXPECT_EQ(template_of_files({{"tokenizer_config.json", "[]"}}), "");
  EXPECT_EQ(template_of_files({{"chat_template.jinja", text::kNewTokenizerTemplate}}), "");
}

TEST(ModelTemplate, TrainedOnComesBeforeImported) {
  EXPECT_EQ(template_of({{kImportedTemplateValue, "qwen3"}, {kChatTemplateValue, "chatml"}}),
            "chatml");
  std::map<std::string, std::string> values{{kImportedTemplateValue, "qwen3"},
                                            {kImportedJinjaValue, "custom-1"}};
  EXPECT_EQ(jinja_name_of(values), "custom-1");
  values[kChatTemplateValue] = "qwen3";
  EXPECT_EQ(jinja_name_of(values), "custom-1") << "trained with the same template";
  values[kChatTemplateValue] = "chatml";
  EXPECT_EQ(jinja_name_of(values), "") << "the model does not have that Jinja text any more";
  const std::string name =
      put_imported_template({{"chat_template.jinja", "[INST] {{ messages }}"}}, values);
  EXPECT_EQ(template_of(values), name) << "the template of an adapter";
  EXPECT_EQ(jinja_name_of(values), name);
}

TEST(ModelTemplate, OtherTemplatesOfASetAreRefusedNamingBothAndTheWayOut) {
  const TemplateComparison pair{"--data chats", "chatml", "runs/a", "minimind-v3"};
  const std::string text =
      message_of(ErrorKind::usage, [&] { check_same_template(pair, /*allow_other=*/false); });
  for (const char* word : {"--data chats", "chatml", "runs/a", "minimind-v3",
                           "--template minimind-v3", "--allow-other-template"})
    EXPECT_NE(text.find(word), std::string::npos) << word << ": " << text;
  check_same_template(pair, true);
  check_same_template({"d", "chatml", "m", "chatml"}, false);
  check_same_template({"d", "", "m", "chatml"}, false);
  check_same_template({"d", "chatml", "m", ""}, false);
  check_same_template({"d", "custom-1", "m", "qwen3", "custom-1"}, false);
  const std::string custom = message_of(ErrorKind::usage, [&] {
    check_same_template({"d", "chatml", "m", "custom-12"}, false);
  });
  EXPECT_NE(custom.find("not one of minimind-v1"), std::string::npos) << custom;
  EXPECT_EQ(custom.find("--template custom"), std::string::npos) << custom;
}

TEST(ModelPlace, AHuggingFaceDirectoryIsTheModelOfItsImport) {
  const TempDirectory folder;
  save_models(folder, "");
  import_command({.hf = folder / "hf", .output = folder / "back"});
  comm::SelfCommunicator alone;
  EXPECT_EQ(hash_model(folder / "hf", alone), hash_model(folder / "back", alone));
  EXPECT_EQ(checkpoint_hash_alone(folder / "hf"), checkpoint_hash_alone(folder / "back"));
  overwrite(folder / "kept", "");
  fs::remove(folder / "kept");
  fs::create_directories(folder / "kept/step-000000000");  // files of a killed command
  comm::run_ranks(2, [&](comm::Communicator& world) {
    const WholeModel made = open_whole_model(folder / "hf", folder / "kept", world);
    EXPECT_TRUE(made.made);
    const std::string hash = hash_tensors(made.checkpoint, world, "param/");
    EXPECT_EQ(hash, hash_model(folder / "run", world));
    const WholeModel whole = open_whole_model(folder / "run", folder / "unused", world);
    EXPECT_FALSE(whole.made);
  });
  EXPECT_FALSE(fs::exists(folder / "unused"));
  const Checkpoint kept = Checkpoint::open(folder / "kept/step-000000000");
  ASSERT_EQ(kept.manifest().shards.size(), 2U);
  for (const SavedFile& shard : kept.manifest().shards)
    EXPECT_GT(shard.bytes, kept.manifest().shards.front().bytes / 2) << "both ranks write a part";
  EXPECT_EQ(model_from_values(kept.manifest().values, "kept").num_layers, 2);
}

TEST(ModelPlace, AdaptersAreAddedToTheirBaseAsAnExportDoes) {
  const TempDirectory folder;
  save_models(folder, "");
  save_adapters(folder / "lora", folder / "run/checkpoints/step-000000040");
  export_command_alone({.checkpoint = folder / "lora", .output = folder / "merged"});
  comm::SelfCommunicator alone;
  const Checkpoint made = publish_model(folder / "lora", folder / "whole", alone);
  EXPECT_EQ(hash_tensors(made, alone, "param/"), hash_model(folder / "merged", alone));
  EXPECT_NE(hash_tensors(made, alone, "param/"), hash_model(folder / "run", alone));
  EXPECT_EQ(template_of(made.manifest().values), "chatml");
  EXPECT_FALSE(holds_adapters(made));
  comm::run_ranks(3, [&](comm::Communicator& world) {
    const WholeModel shared = open_whole_model(folder / "lora", folder / "shared", world);
    EXPECT_EQ(hash_tensors(shared.checkpoint, world, "param/"),
              hash_model(folder / "merged", world));
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory
/// Returns a field of /proc/self/status in bytes: VmRSS or its maximum, VmHWM.
std::int64_t memory_of_process(const std::string& field) {
  const std::string status = read_file("/proc/self/status");
  return 1024 * std::stoll(status.substr(status.find(field + ":") + field.size() + 1));
}

TEST(ModelPlace, AnImportHasOneTensorAtATimeInMemory) {
  const TempDirectory folder;
  model::ModelConfig config = small(true, true);
  config.hidden_size = 256;
  config.head_dim = 64;
  config.intermediate_size = 704;
  config.num_layers = 24;
  save_model(folder / "run/checkpoints", config, 1);
  export_command_alone({.checkpoint = folder / "run", .output = folder / "hf"});
  const auto total = static_cast<std::int64_t>(fs::file_size(folder / "hf/model.safetensors"));
  ASSERT_GT(total, 50'000'000);
  ::malloc_trim(0);
  overwrite("/proc/self/clear_refs", "5");  // VmHWM becomes VmRSS
  const std::int64_t before = memory_of_process("VmRSS");
  import_command({.hf = folder / "hf", .output = folder / "back"});
  EXPECT_LT(memory_of_process("VmHWM") - before, total / 3);
}
#endif

TEST(ModelPlace, AdaptersAreExportedWithBaseTokenizerAndTemplate) {
  const TempDirectory folder;
  save_models(folder, "");
  save_adapters(folder / "lora", folder / "run/checkpoints/step-000000040");
  const auto exported = [&](const std::string& name, const ExportCommand& options) {
    ExportCommand all = options;
    all.checkpoint = folder / "lora";
    all.output = folder / name;
    all.adapter = true;
    export_command_alone(all);
    return read_json(folder / name / "adapter_config.json").at("base_model_name_or_path");
  };
  EXPECT_EQ(exported("named", {.base_name = "org/model"}), "org/model");
  EXPECT_EQ(exported("beside", {.base = folder / "hf"}), (folder / "hf").string());
  EXPECT_EQ(exported("plain", {}), (folder / "lora/base").string());
  EXPECT_EQ(read_file(folder / "plain/chat_template.jinja"), text::chat_template("chatml").jinja());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    EXPECT_TRUE(fs::exists(folder / "plain" / file)) << file;
  for (const char* file : {"config.json", "config.toml", "README.md"})
    EXPECT_FALSE(fs::exists(folder / "plain" / file)) << file;
  message_of(ErrorKind::usage, [&] {
    export_command_alone({.checkpoint = folder / "lora", .output = folder / "x", .base_name = "y"});
  });

  const ExportCommand named{.checkpoint = folder / "lora", .output = folder / "x"};
  const auto refused = [&](const std::string& format, bool adapter) {
    ExportCommand options = named;
    options.format = format;
    options.adapter = adapter;
    return message_of(ErrorKind::usage, [&] { export_command_alone(options); });
  };
  EXPECT_EQ(refused("onnx", false), "--format onnx, must be one of hf, gguf, peft");
  EXPECT_EQ(refused("hf", true), "--adapter needs --format peft, but --format is hf");
  export_command_alone(
      {.checkpoint = folder / "lora", .output = folder / "peft", .format = "peft"});
  EXPECT_EQ(read_file(folder / "peft/adapter_model.safetensors"),
            read_file(folder / "plain/adapter_model.safetensors"));

  // The adapters are imported on a Hugging Face directory with the chat template of their training.
  fs::create_directories(folder / "back/base/.tmp-step-000000000");
  overwrite(folder / "back/base/.tmp-step-000000000/shard", "of a killed import");
  import_command({.peft = folder / "plain", .base = folder / "hf", .output = folder / "back"});
  EXPECT_EQ(template_of(values_of(folder / "back")), "chatml");
  EXPECT_EQ(checkpoint_hash_alone(folder / "back/base"), checkpoint_hash_alone(folder / "hf"));
  EXPECT_EQ(checkpoint_hash_alone(folder / "back"), checkpoint_hash_alone(folder / "lora"));
  fs::create_directories(folder / "again");
  fs::copy(folder / "back/base", folder / "again/base", fs::copy_options::recursive);
  import_command({.peft = folder / "plain", .base = folder / "run", .output = folder / "again"});
  EXPECT_EQ(checkpoint_hash_alone(folder / "again/base"), checkpoint_hash_alone(folder / "run"));
  fs::create_directories(folder / "own");
  fs::copy(folder / "back/base", folder / "own/base", fs::copy_options::recursive);
  message_of(ErrorKind::usage, [&] {
    import_command(
        {.peft = folder / "plain", .base = folder / "own/base", .output = folder / "own"});
  });
  EXPECT_TRUE(fs::exists(folder / "own/base/step-000000000")) << "the only copy of the base";
  fs::create_directories(folder / "other/checkpoints.old");
  message_of(ErrorKind::usage, [&] {
    import_command({.peft = folder / "plain", .base = folder / "run", .output = folder / "other"});
  });
}

TEST(ModelPlace, AHuggingFaceDirectoryIsExportedInAnotherPrecision) {
  const TempDirectory folder;
  save_models(folder, "");
  export_command_alone({.checkpoint = folder / "hf", .output = folder / "half/", .dtype = "bf16"});
  export_command_alone(
      {.checkpoint = folder / "run", .output = folder / "wanted", .dtype = "bf16"});
  EXPECT_EQ(read_file(folder / "half/model.safetensors"),
            read_file(folder / "wanted/model.safetensors"));
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  const auto other = claim_temporary(folder / "twice.model.tmp", folder / "twice");
  EXPECT_NE(
      message_of(
          ErrorKind::usage,
          [&] { export_command_alone({.checkpoint = folder / "hf", .output = folder / "twice"}); })
          .find("another export is writing"),
      std::string::npos);
}

TEST(ModelPlace, AnInvalidModelIsReportedWithWhatToDo) {
  const TempDirectory folder;
  save_models(folder, "");
  const std::string hf = message_of(ErrorKind::data, [&] { verify_alone(folder / "hf"); });
  EXPECT_NE(hf.find("trireme import --hf"), std::string::npos) << hf;
  fs::create_directory(folder / "peft");
  overwrite(folder / "peft/adapter_config.json", "{}");
  const std::string peft =
      message_of(ErrorKind::data, [&] { read_model_description(folder / "peft"); });
  EXPECT_NE(peft.find("trireme import --peft"), std::string::npos) << peft;
  const auto import_hf_error = [&](const char* name) {
    return message_of(ErrorKind::data, [&] {
      import_command({.hf = folder / name, .output = folder / "imported"});
    });
  };
  const std::string adapters = import_hf_error("peft");
  EXPECT_NE(adapters.find("trireme import --peft"), std::string::npos) << adapters;
  const std::string own = import_hf_error("run");
  EXPECT_NE(own.find("need no import"), std::string::npos) << own;
  const std::string absent = import_hf_error("absent");
  EXPECT_NE(absent.find("config.json"), std::string::npos) << absent;
}

TEST(ImportedTokenizer, IsRefusedOnRequestIfItCannotBeRead) {
  const TempDirectory folder;
  save_models(folder, "");
  const auto refused = [&] {
    const std::string text = message_of(ErrorKind::data, [&] {
      import_command({.hf = folder / "hf", .output = folder / "x", .require_tokenizer = true});
    });
    EXPECT_FALSE(fs::exists(folder / "x"));
    return text;
  };
  overwrite(folder / "hf/tokenizer.json",
            R"({"version": "1.0", "model": {"type": "Unigram", "vocab": [["a", 0]]}})");
  EXPECT_NE(refused().find("Unigram"), std::string::npos);
  fs::remove(folder / "hf/tokenizer.json");
  EXPECT_NE(refused().find("tokenizer.json is missing"), std::string::npos);
  const auto warning = [](const std::function<void()>& work) {
    testing::internal::CaptureStderr();
    work();
    return testing::internal::GetCapturedStderr();
  };
  const std::string of_import =
      warning([&] { import_command({.hf = folder / "hf", .output = folder / "x"}); });
  EXPECT_NE(of_import.find("--require-tokenizer"), std::string::npos) << of_import;
  EXPECT_TRUE(fs::exists(folder / "x/checkpoints"));
  const std::string of_start = warning([&] {
    comm::SelfCommunicator alone;
    (void)open_whole_model(folder / "hf", folder / "kept", alone);
  });
  EXPECT_NE(of_start.find(cat((folder / "hf").string(), ": tokenizer.json is missing")),
            std::string::npos)
      << of_start;
  EXPECT_EQ(of_start.find("--require-tokenizer"), std::string::npos) << of_start;
}

TEST(MinimindImport, AdaptersAreCalledAdapters) {
  const TempDirectory folder;
  Pickle pickle;
  pickle.raw("}(").text("layers.0.self_attn.q_proj.lora.A.weight");
  pickle.tensor("FloatStorage", "0", 4, 0, {2, 2}, {2, 1}).raw("u.");
  overwrite(folder / "lora.pth",
            zip_of({{"m/data.pkl", pickle.code}, {"m/data/0", std::string(16, '\0')}}));
  const std::string text = message_of(ErrorKind::data, [&] {
    import_command(
        {.minimind = folder / "lora.pth", .model = small(true, true), .output = folder / "x"});
  });
  for (const char* word : {"is an adapter (LoRA)", "lora.A.weight", "--peft"})
    EXPECT_NE(text.find(word), std::string::npos) << word << ": " << text;
}

}  // namespace
}  // namespace trireme::checkpoint
