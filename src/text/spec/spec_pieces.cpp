#include <algorithm>
#include <array>
#include <cmath>

#include "text/spec/spec_part.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text::spec {
namespace {

constexpr std::string_view kNormalizers =
    "null, NFC, NFD, NFKC, NFKD, Lowercase, Precompiled, Prepend, Replace, Strip, StripAccents, "
    "Sequence of these";
constexpr std::string_view kPreTokenizers =
    "null, Metaspace, WhitespaceSplit, Split at a String, Sequence of these";
constexpr std::string_view kDecoders =
    "Metaspace, or a Sequence of Replace, ByteFallback, Fuse, Strip in this order";

/// Returns a text that must not be empty.
std::string some_text(const Part& part, const char* key) {
  std::string text = part.text(key);
  if (text.empty()) fail(ErrorKind::data, "{}.{} is empty, must be a text", part.where(), key);
  return text;
}

/// Returns a text of one character.
std::string one_character(const Part& part, const char* key) {
  std::string text = part.text(key);
  if (utf8_length(text) != 1)
    fail(ErrorKind::data, "{}.{} = '{}', must be one character", part.where(), key, text);
  return text;
}

/// Returns the text of {"String": text}.
std::string string_pattern(const Part& part) {
  const Part pattern = part.part("pattern");
  if (pattern.at("String").is_null()) unsupported(pattern, "Regex", "String");
  return some_text(pattern, "String");
}

NormalizerStep read_replace(const Part& part) {
  using enum NormalizerStep::Kind;
  const Part pattern = part.part("pattern");
  std::string to = part.text("content");
  if (!pattern.at("String").is_null())
    return {.kind = replace, .from = some_text(pattern, "String"), .to = std::move(to)};
  const std::string regex = pattern.text("Regex");
  if (regex == " {2,}") return {.kind = replace_blanks, .to = std::move(to)};
  fail(ErrorKind::data, "{}.Regex = {} is not supported; supported: ' {{2,}}'", pattern.where(),
       regex.substr(0, 80));
}

NormalizerStep read_precompiled(const Part& part) {
  const std::string where = formatted("{}.precompiled_charsmap", part.where());
  const auto bytes = decode_base64(part.text("precompiled_charsmap"));
  if (!bytes) fail(ErrorKind::data, "{} is not base64. Copy the tokenizer files again.", where);
  return {.kind = NormalizerStep::Kind::precompiled,
          .charsmap = std::make_shared<const Charsmap>(*bytes, where)};
}

PieceStep read_metaspace(const Part& part) {
  using enum PieceStep::Prepend;
  PieceStep step{.text = one_character(part, "replacement")};
  if (part.at("prepend_scheme").is_null()) {  // files written before version 0.15
    step.prepend = part.flag("add_prefix_space", true) ? always : never;
  } else {
    const std::string scheme = part.text("prepend_scheme");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      fail(ErrorKind::data, "{}.prepend_scheme = '{}', must be always, first or never",
           part.where(), scheme);
    step.prepend = scheme == "always" ? always : scheme == "first" ? first : never;
  }
  step.split = part.flag("split", true);
  return step;
}

PieceStep read_split_text(const Part& part) {
  using enum PieceStep::Behavior;
  PieceStep step{.kind = PieceStep::Kind::split_text, .text = string_pattern(part)};
  const std::string behavior = part.text("behavior");
  constexpr std::array<std::pair<std::string_view, PieceStep::Behavior>, 4> kNames = {
      {{"Isolated", isolated},
       {"Removed", removed},
       {"MergedWithPrevious", with_previous},
       {"MergedWithNext", with_next}}};
  const auto found = std::ranges::find(kNames, behavior, [](const auto& row) { return row.first; });
  if (found == kNames.end())
    fail(
        ErrorKind::data,
        "{}.behavior = '{}' is not supported; supported: Isolated, Removed, MergedWithPrevious, MergedWithNext",
        part.where(), behavior);
  step.behavior = found->second;
  if (part.flag("invert", false))
    fail(ErrorKind::data, "{}.invert = true is not supported, must be false", part.where());
  return step;
}

/// Reads [["token", score], ...]; the position is the id.
void read_scores(const Part& model, TokenizerSpec& spec) {
  const SortedJson& vocab = model.array("vocab");
  if (vocab.size() > kMaxTokenId)
    fail(ErrorKind::data, "{}.vocab has {} entries, must have at most {}", model.where(),
         vocab.size(), kMaxTokenId);
  for (std::size_t i = 0; i < vocab.size(); ++i) {
    const SortedJson& row = vocab[i];
    if (!row.is_array() || row.size() != 2 || !row[0].is_string() || !row[1].is_number() ||
        !std::isfinite(row[1].get<double>()))
      fail(ErrorKind::data, "{}.vocab[{}] must be [\"token\", score]", model.where(), i);
    const auto id = static_cast<std::uint32_t>(i);
    if (!spec.vocab.emplace(row[0].get<std::string>(), id).second)
      fail(ErrorKind::data, "{}.vocab[{}]: the token '{}' has two ids", model.where(), i,
           row[0].get<std::string>());
    spec.pieces->scores.push_back(row[1].get<double>());
  }
  spec.vocab_size = static_cast<std::uint32_t>(vocab.size());
}

void read_unigram(const Part& model, TokenizerSpec& spec) {
  read_scores(model, spec);
  PieceSpec& pieces = *spec.pieces;
  pieces.unigram = true;
  pieces.fuse_unk = true;  // the library has no key for it
  if (model.at("unk_id").is_null())
    fail(ErrorKind::data,
         "{}.unk_id is null. A Unigram model must have the id of its unknown token", model.where());
  pieces.unk_id = read_id(model.at("unk_id"), model.where() + ".unk_id");
  if (*pieces.unk_id >= spec.vocab_size)
    fail(ErrorKind::data, "{}.unk_id = {}, must be below the vocabulary size {}", model.where(),
         *pieces.unk_id, spec.vocab_size);
}

void read_bpe(const Part& model, TokenizerSpec& spec) {
  const SortedJson& dropout = model.at("dropout");
  if (!dropout.is_number() || dropout.get<double>() != 0) model.must_be_unset("dropout");
  model.must_be_unset("continuing_subword_prefix", true);
  model.must_be_unset("end_of_word_suffix", true);
  spec.ignore_merges = model.flag("ignore_merges", false);
  PieceSpec& pieces = *spec.pieces;
  pieces.fuse_unk = model.flag("fuse_unk", false);
  read_vocab_object(model, spec);
  read_merges(model, spec);
  if (model.at("unk_token").is_null()) return;
  const auto unknown = spec.vocab.find(model.text("unk_token"));
  if (unknown == spec.vocab.end())
    fail(ErrorKind::data, "{}.unk_token = '{}' is not in the vocabulary", model.where(),
         model.text("unk_token"));
  pieces.unk_id = unknown->second;
}

}  // namespace

bool has_pieces(const Part& root) {
  const SortedJson& model = root.at("model");
  if (!model.is_object()) return false;  // refused with the model
  if (model.value("type", SortedJson()) == "Unigram") return true;
  const SortedJson* decoder = &root.at("decoder");
  for (int depth = 0; depth < kMaxDepth && decoder->is_object(); ++depth) {
    const auto steps = decoder->find("decoders");
    if (steps == decoder->end() || !steps->is_array() || steps->empty()) break;
    decoder = &steps->front();
  }
  if (!decoder->is_object()) return false;
  const SortedJson type = decoder->value("type", SortedJson());
  return type == "Replace" || type == "ByteFallback" || type == "Metaspace";
}

void read_piece_model(const Part& model, TokenizerSpec& spec) {
  const std::string type =
      model.at("type").is_null() && model.at("merges").is_array() ? "BPE" : model.text("type");
  spec.pieces->byte_fallback = model.flag("byte_fallback", false);
  if (type == "Unigram") return read_unigram(model, spec);
  if (type != "BPE") unsupported(model, type, "BPE, Unigram");
  read_bpe(model, spec);
}

void read_piece_normalizer(const SortedJson& value, const std::string& where, TokenizerSpec& spec) {
  using enum NormalizerStep::Kind;
  std::vector<NormalizerStep> steps;
  for_each_step(value, where, "normalizers", [&](const Part& part, const std::string& type) {
    constexpr std::array<std::pair<std::string_view, NormalizerStep::Kind>, 6> kWithoutSettings = {
        {{"NFC", nfc},
         {"NFD", nfd},
         {"NFKC", nfkc},
         {"NFKD", nfkd},
         {"Lowercase", lowercase},
         {"StripAccents", strip_accents}}};
    const auto found =
        std::ranges::find(kWithoutSettings, type, [](const auto& row) { return row.first; });
    if (found != kWithoutSettings.end()) {
      steps.push_back({.kind = found->second});
    } else if (type == "Precompiled") {
      steps.push_back(read_precompiled(part));
    } else if (type == "Prepend") {
      steps.push_back({.kind = prepend, .to = part.text("prepend")});
    } else if (type == "Replace") {
      steps.push_back(read_replace(part));
    } else if (type == "Strip") {
      steps.push_back({.kind = strip,
                       .left = part.flag("strip_left", true),
                       .right = part.flag("strip_right", true)});
    } else {
      unsupported(part, type, kNormalizers);
    }
  });
  spec.normalizer = Normalizer(std::move(steps));
}

void read_piece_pre_tokenizer(const SortedJson& value, const std::string& where,
                              TokenizerSpec& spec) {
  std::vector<PieceStep>& steps = spec.pieces->steps;
  for_each_step(value, where, "pretokenizers", [&](const Part& part, const std::string& type) {
    if (type == "Metaspace") {
      steps.push_back(read_metaspace(part));
      // Hugging Face decides by positions in the text before normalization, which are unknown here.
      if (steps.size() > 1 && steps.back().prepend == PieceStep::Prepend::first)
        fail(
            ErrorKind::data,
            "{}.prepend_scheme = 'first' is not supported after another step; supported: always, never",
            part.where());
    } else if (type == "WhitespaceSplit") {
      steps.push_back({.kind = PieceStep::Kind::whitespace_split});
    } else if (type == "Split") {
      steps.push_back(read_split_text(part));
    } else {
      unsupported(part, type, kPreTokenizers);
    }
  });
}

void read_piece_decoder(const SortedJson& value, const std::string& where, TokenizerSpec& spec) {
  if (value.is_null()) fail(ErrorKind::data, "{} is null; supported: {}", where, kDecoders);
  PieceDecoder& decoder = spec.pieces->decoder;
  int done = 0;  // the position of the last step in the supported order
  for_each_step(value, where, "decoders", [&](const Part& part, const std::string& type) {
    constexpr std::array<std::string_view, 5> kOrder = {"Replace", "ByteFallback", "Fuse", "Strip",
                                                        "Metaspace"};
    const auto found = std::ranges::find(kOrder, type);
    const int place = static_cast<int>(found - kOrder.begin()) + 1;
    const bool again = place == done && type != "Replace" && type != "Fuse";
    const bool misplaced = (type == "Metaspace" && done != 0) || (type == "Strip" && done != 3);
    if (found == kOrder.end() || place < done || again || misplaced)
      unsupported(part, type, kDecoders);
    done = place;
    if (type == "Replace")
      decoder.replaced.emplace_back(string_pattern(part), part.text("content"));
    if (type == "ByteFallback") decoder.byte_tokens = true;
    if (type == "Metaspace") {
      const PieceStep step = read_metaspace(part);
      decoder.metaspace = step.text;
      decoder.first_loses_spaces = step.prepend != PieceStep::Prepend::never;
    }
    if (type != "Strip") return;
    decoder.cut = one_character(part, "content");
    decoder.max_cut = read_id(part.at("start"), part.where() + ".start");
    if (read_id(part.at("stop"), part.where() + ".stop") != 0)
      fail(ErrorKind::data, "{}.stop is not supported, must be 0", part.where());
  });
  if (done == 0) fail(ErrorKind::data, "{} has no step; supported: {}", where, kDecoders);
}

}  // namespace trireme::text::spec
