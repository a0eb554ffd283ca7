#include <gtest/gtest.h>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "checkpoint/minimind/minimind_import.hpp"
#include "checkpoint/minimind/torch_file.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"
#include "unit/checkpoint/torch_save.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

std::string floats(std::size_t count, float first = 0) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) add_number(bytes, first + static_cast<float>(i));
  return bytes;
}

/// Returns a file with {"a": [2, 3] of storage 0 from element 1 on, "b": [] bf16 of storage 1},
/// with the metadata of a state dict.
std::string good_file() {
  Pickle pickle;
  pickle.global("collections", "OrderedDict").raw(")Rq").raw(std::string(1, '\0')).raw("(");
  pickle.text("a").tensor("FloatStorage", "0", 7, 1, {2, 3}, {3, 1});
  pickle.text("b").tensor("BFloat16Storage", "1", 1, 0, {}, {}).raw("u");
  pickle.raw("}").text("_metadata").raw("}sb.");
  return zip_of({{"m/data.pkl", pickle.code},
                 {"m/byteorder", "little"},
                 {"m/data/0", floats(7)},
                 {"m/data/1", std::string("\x80\x3f", 2)}});
}

TEST(TorchFile, GivesNamesShapesAndElements) {
  const TempDirectory folder;
  overwrite(folder / "m.pth", good_file());

  const TorchFile file = TorchFile::open(folder / "m.pth");

  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors().at("a").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.tensors().at("b").dtype, DType::bf16);
  std::vector<float> a(6);
  file.read("a", std::as_writable_bytes(std::span(a)));
  EXPECT_EQ(a, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  std::array<std::byte, 2> b{};
  file.read("b", b);
  EXPECT_EQ(b[1], std::byte{0x3f});
}

std::string refusal(const std::string& pickle, const std::string& storage = floats(7)) {
  const TempDirectory folder;
  overwrite(folder / "m.pth", zip_of({{"m/data.pkl", pickle}, {"m/data/0", storage}}));
  return message_of(ErrorKind::data, [&] { (void)TorchFile::open(folder / "m.pth"); });
}

TEST(TorchFile, RefusesByNameWhatIsNoTensorAndNoDict) {
  const auto in_dict = [](const Pickle& value) {
    return Pickle().raw("}").text("key").raw(std::string_view(value.code).substr(2)).raw("s.").code;
  };
  Pickle attack;
  attack.global("posix", "system").text("touch /tmp/pwned").raw("\x85R.");
  Pickle parameter;
  parameter.global("torch._utils", "_rebuild_parameter");
  const std::vector<std::pair<std::string, std::string>> cases{
      {attack.code, "posix.system"},
      {in_dict(parameter), "torch._utils._rebuild_parameter"},
      {in_dict(Pickle().number(7)), "'key' is a number"},
      {in_dict(Pickle().raw("]")), "'key' is a list"},
      {in_dict(Pickle().raw("}")), "'key' is a dict"},
      {Pickle().raw("].").code, "it is a list, not a dict"},
      {Pickle().raw("i").code, "instruction 105"},
      {Pickle().raw("}").code, "ends early"},
      {Pickle().raw("0.").code, "instruction 48"},
      {Pickle().raw(".").code, "empty stack"},
      {Pickle().raw("}h\x05.").code, "no such memo"},
      {in_dict(Pickle().tensor("ComplexFloatStorage", "0", 7, 0, {7}, {1})),
       "torch.ComplexFloatStorage"},
      {in_dict(Pickle().tensor("FloatStorage", "0", 7, 0, {3, 2}, {1, 3})), "not contiguous"},
      {in_dict(Pickle().tensor("FloatStorage", "0", 7, 2, {6}, {1})), "outside its storage"},
      {in_dict(Pickle().tensor("FloatStorage", "0", 7, -1, {6}, {1})), "outside its storage"},
      {in_dict(Pickle().tensor("FloatStorage", "0", 7, 0, {2147483647, 2147483647, 2147483647},
                               {1, 1, 1})),
       "larger than its storage"},
      {in_dict(Pickle().tensor("FloatStorage", "0", 8, 0, {8}, {1})), "elements of 'key'"},
      {in_dict(Pickle().tensor("FloatStorage", "9", 7, 0, {7}, {1})), "elements of 'key'"}};
  for (const auto& [pickle, words] : cases) {
    const std::string text = refusal(pickle);
    EXPECT_NE(text.find(words), std::string::npos) << words << ": " << text;
  }
  std::string deep = "\x80\x02";
  for (int i = 0; i < 100'000; ++i) deep += ")\x85";  // tuples in tuples
  EXPECT_NE(refusal(deep + ".").find("not a dict"), std::string::npos);
}

TEST(TorchFile, OtherFilesAndCompressedOnesAreRefused) {
  const TempDirectory folder;
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "is not a torch.save file"},
      {"PK", "is not a torch.save file"},
      {std::string("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15), "older file"},
      {zip_of({}), "no data.pkl"},
      {zip_of({{"m/data.pkl", "x"}}, 8), "is compressed"},
      {zip_of({{"m/data.pkl", "}."}, {"m/byteorder", "big"}}), "not little-endian"},
      {zip_of({{"m/data.pkl", "}."}, {"m/data.pkl", "}."}}), "two records"}};
  for (const auto& [content, words] : cases) {
    overwrite(folder / "m.pth", content);
    const std::string text =
        message_of(ErrorKind::data, [&] { (void)TorchFile::open(folder / "m.pth"); });
    EXPECT_NE(text.find(words), std::string::npos) << words << ": " << text;
  }
}

/// Every flipped bit of every byte must give a refusal or the original values.
TEST(TorchFile, DamageIsFoundOrChangesNothing) {
  const TempDirectory folder;
  const std::string good = good_file();
  int refused = 0;
  const auto look = [&](const std::string& content) {
    overwrite(folder / "m.pth", content);
    try {
      const TorchFile file = TorchFile::open(folder / "m.pth");
      std::vector<float> a(6);
      if (!file.tensors().contains("a") || file.tensors().at("a").shape.size() != 2) return;
      file.read("a", std::as_writable_bytes(std::span(a)));
      EXPECT_EQ(a, (std::vector<float>{1, 2, 3, 4, 5, 6}));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
      ++refused;
    }
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(static_cast<unsigned char>(damaged[i]) ^ (1U << bit));
      look(damaged);
    }
    look(good.substr(0, i));
  }
  EXPECT_GT(refused, static_cast<int>(good.size()) * 6);
}

model::ModelConfig tiny_v2() {
  model::ModelConfig config = model::model_preset("minimind-2-small");
  config.hidden_size = 16;
  config.num_layers = 1;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.intermediate_size = 4;
  config.vocab_size = 6;
  return config;
}

/// Returns a model with one layer and head_dim 8. Element (row, column) of wq is row + column /
/// 100.
std::string v2_file(const std::string& prefix = "", bool with_more = false) {
  struct One {
    const char* name;
    std::int32_t rows, columns;
  };

  std::vector<One> tensors{{"tok_embeddings.weight", 6, 16},
                           {"layers.0.attention_norm.weight", 16, 1},
                           {"layers.0.attention.wq.weight", 16, 16},
                           {"layers.0.attention.wk.weight", 8, 16},
                           {"layers.0.attention.wv.weight", 8, 16},
                           {"layers.0.attention.wo.weight", 16, 16},
                           {"layers.0.ffn_norm.weight", 16, 1},
                           {"layers.0.feed_forward.w1.weight", 4, 16},
                           {"layers.0.feed_forward.w2.weight", 16, 4},
                           {"layers.0.feed_forward.w3.weight", 4, 16},
                           {"norm.weight", 16, 1},
                           {"output.weight", 6, 16}};
  if (with_more) tensors.push_back({"layers.0.feed_forward.gate.weight", 4, 16});
  Pickle pickle;
  pickle.raw("}(");
  std::vector<ZipRecord> records{{"m/data.pkl", ""}};
  for (const One& one : tensors) {
    const bool flat = one.columns == 1;
    const std::string key =
        one.name == std::string("output.weight") ? "0" : cat(records.size() - 1);
    pickle.text(cat(prefix, one.name));
    pickle.tensor("FloatStorage", key, one.rows * one.columns, 0,
                  flat ? std::vector{one.rows} : std::vector{one.rows, one.columns},
                  flat ? std::vector{1} : std::vector{one.columns, 1});
    std::string content;
    for (std::int32_t row = 0; row < one.rows; ++row) {
      for (std::int32_t column = 0; column < one.columns; ++column)
        add_number(content, static_cast<float>(row) + static_cast<float>(column) / 100);
    }
    records.push_back({cat("m/data/", records.size() - 1), content});
  }
  records[0].content = pickle.raw("u.").code;
  return zip_of(records);
}

std::vector<float> first_column(const Checkpoint& checkpoint, const std::string& name) {
  const std::vector<std::byte> bytes = checkpoint.read_logical("param/" + name);
  const auto rows =
      static_cast<std::size_t>(checkpoint.manifest().tensors.at("param/" + name).shape[0]);
  std::vector<float> column;
  for (std::size_t row = 0; row < rows; ++row) {
    float value = 0;
    std::memcpy(&value, bytes.data() + row * (bytes.size() / rows), sizeof value);
    column.push_back(value);
  }
  return column;
}

TEST(MinimindImport, RenamesAndPutsRowsOfPairsIntoHalves) {
  const TempDirectory folder;
  overwrite(folder / "plain.pth", v2_file());
  overwrite(folder / "compiled.pth", v2_file("_orig_mod."));

  for (const char* name : {"plain", "compiled"}) {
    import_minimind({folder.path() / cat(name, ".pth"), tiny_v2(), {}}, folder / name);

    const Checkpoint back = verify_checkpoint(folder / name / "step-000000000");
    EXPECT_EQ(first_column(back, "model.layers.0.self_attn.q_proj.weight"),
              (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}));
    EXPECT_EQ(first_column(back, "model.layers.0.self_attn.k_proj.weight"),
              (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7}));
    EXPECT_EQ(first_column(back, "model.layers.0.self_attn.v_proj.weight"),
              (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_TRUE(model_from_values(back.manifest().values, "back").tie_embeddings);
    EXPECT_FALSE(back.manifest().tensors.contains("param/lm_head.weight"));
  }
}

TEST(MinimindImport, TensorsThatDoNotFitTheShapeAreListed) {
  const TempDirectory folder;
  overwrite(folder / "moe.pth", v2_file("", true));
  const std::string extra = message_of(ErrorKind::data, [&] {
    import_minimind({folder / "moe.pth", tiny_v2(), {}}, folder / "run");
  });
  EXPECT_NE(extra.find("extra: model.layers.0.mlp.gate.weight"), std::string::npos) << extra;
  model::ModelConfig other = tiny_v2();
  other.num_layers = 2;
  other.num_kv_heads = 2;
  const std::string text = message_of(ErrorKind::data, [&] {
    import_minimind({folder / "moe.pth", other, {}}, folder / "run");
  });
  EXPECT_NE(text.find("missing: model.layers.1.mlp.up_proj.weight"), std::string::npos) << text;
  EXPECT_NE(
      text.find("model.layers.0.self_attn.k_proj.weight: shape [8, 16], the model's is [16, 16]"),
      std::string::npos)
      << text;
  EXPECT_FALSE(fs::exists(folder / "run"));
}

}  // namespace
}  // namespace trireme::checkpoint
