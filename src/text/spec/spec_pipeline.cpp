#include <algorithm>

#include "text/spec/spec_part.hpp"

namespace trireme::text::spec {
namespace {

SplitStep read_split(const Part& part) {
  const std::string behavior = part.text("behavior");
  if (behavior != "Isolated")
    fail(ErrorKind::data, "{}.behavior = '{}' is not supported; supported: Isolated", part.where(),
         behavior);
  if (part.flag("invert", false))
    fail(ErrorKind::data, "{}.invert = true is not supported, must be false", part.where());
  const Part pattern = part.part("pattern");
  if (pattern.at("Regex").is_null()) unsupported(pattern, "String", "Regex");
  const std::string regex = pattern.text("Regex");
  const auto step = step_of_pattern(regex);
  if (!step)
    fail(ErrorKind::data, "{}.Regex = {} is not supported; supported: {}", pattern.where(),
         regex.substr(0, 400), known_patterns());
  return *step;
}

/// Reads the template for a single text: special tokens around $A. The template for pairs is not
/// used.
void read_template(const Part& part, TokenizerSpec& spec) {
  const Part specials = part.part("special_tokens");
  bool after_text = false;
  for (const SortedJson& value : part.array("single")) {
    const Part element(value, part.where() + ".single[]");
    if (!element.at("Sequence").is_null()) {
      if (after_text || element.part("Sequence").text("id") != "A")
        fail(ErrorKind::data, "{}.single must contain $A once and no $B", part.where());
      after_text = true;
      continue;
    }
    const std::string name = element.part("SpecialToken").text("id");
    for (const SortedJson& id : specials.part(name.c_str()).array("ids")) {
      const std::uint32_t token = read_id(id, formatted("{}.{}.ids", specials.where(), name));
      (after_text ? spec.suffix_ids : spec.prefix_ids).push_back(token);
    }
  }
  if (!after_text) fail(ErrorKind::data, "{}.single has no $A", part.where());
}

/// Returns the id in ["</s>", 2].
std::uint32_t read_token_pair(const Part& part, const char* key) {
  const SortedJson& pair = part.array(key);
  if (pair.size() != 2 || !pair[0].is_string())
    fail(ErrorKind::data, "{}.{} must be [token, id]", part.where(), key);
  return read_id(pair[1], formatted("{}.{}", part.where(), key));
}

}  // namespace

void read_normalizer(const SortedJson& value, const std::string& where, TokenizerSpec& spec) {
  for_each_step(value, where, "normalizers", [&](const Part& part, const std::string& type) {
    if (type == "NFKC")
      spec.normalizer = Normalizer::nfkc();  // NFC before or after it changes nothing
    else if (type != "NFC")
      unsupported(part, type, "null, NFC, NFKC, Sequence of these");
    else if (!spec.normalizer.is_nfkc())
      spec.normalizer = Normalizer::nfc_if(true);
  });
}

void read_pre_tokenizer(const SortedJson& value, const std::string& where, TokenizerSpec& spec) {
  constexpr std::string_view kSupported =
      "ByteLevel, Split, Digits, Sequence that ends in ByteLevel";
  bool mapped = false;  // ByteLevel converts bytes to characters, so it must be the last step
  for_each_step(value, where, "pretokenizers", [&](const Part& part, const std::string& type) {
    if (mapped)
      fail(ErrorKind::data, "{} has a step after ByteLevel, which must be the last", part.where());
    if (type == "Split") {
      spec.steps.push_back(read_split(part));
    } else if (type == "Digits") {
      spec.steps.push_back(part.flag("individual_digits", false) ? SplitStep::single_digits
                                                                 : SplitStep::digits);
    } else if (type == "ByteLevel") {
      mapped = true;
      if (part.flag("add_prefix_space", true)) spec.steps.push_back(SplitStep::prefix_space);
      if (part.flag("use_regex", true)) spec.steps.push_back(SplitStep::gpt2);
    } else {
      unsupported(part, type, kSupported);
    }
  });
  if (value.is_null()) fail(ErrorKind::data, "{} is null; supported: {}", where, kSupported);
  if (!mapped) fail(ErrorKind::data, "{} has no ByteLevel step; supported: {}", where, kSupported);
}

void read_post_processor(const SortedJson& value, const std::string& where, TokenizerSpec& spec) {
  bool wrapped = false;
  for_each_step(value, where, "processors", [&](const Part& part, const std::string& type) {
    if (type == "ByteLevel") return;  // changes offsets only
    const bool cls_and_sep = type == "RobertaProcessing" || type == "BertProcessing";
    if (!cls_and_sep && type != "TemplateProcessing")
      unsupported(part, type,
                  "null, ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, "
                  "Sequence of these");
    // Hugging Face would put the ids of the second step between those of the first step and the
    // text.
    if (wrapped)
      fail(ErrorKind::data,
           "{} has two steps that put tokens around the text, at most one is supported", where);
    wrapped = true;
    if (cls_and_sep) {
      spec.prefix_ids.push_back(read_token_pair(part, "cls"));
      spec.suffix_ids.push_back(read_token_pair(part, "sep"));
    } else {
      read_template(part, spec);
    }
  });
}

void check_decoder(const SortedJson& value, const std::string& where) {
  constexpr std::string_view kSupported =
      "ByteLevel, Sequence of ByteLevel and then nothing but Fuse";
  bool decoded = false;
  for_each_step(value, where, "decoders", [&](const Part& part, const std::string& type) {
    // Before ByteLevel, Fuse would change the boundaries between tokens.
    const bool known = decoded ? type == "Fuse" : type == "ByteLevel";
    if (!known) unsupported(part, type, kSupported);
    decoded = true;
  });
  if (value.is_null()) fail(ErrorKind::data, "{} is null; supported: {}", where, kSupported);
  if (!decoded) fail(ErrorKind::data, "{} has no step; supported: {}", where, kSupported);
}

}  // namespace trireme::text::spec
