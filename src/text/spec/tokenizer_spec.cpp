#include "text/spec/tokenizer_spec.hpp"

#include "text/spec/spec_part.hpp"

namespace trireme::text {
namespace {

void check_special_ids(const TokenizerSpec& spec, const std::string& where) {
  for (const auto* ids : {&spec.prefix_ids, &spec.suffix_ids}) {
    for (const std::uint32_t id : *ids) {
      if (id >= spec.vocab_size)
        fail(ErrorKind::data, "{}: id {} is outside the vocabulary of {}", where, id,
             spec.vocab_size);
    }
  }
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, std::string_view where) {
  std::string file(where);
  if (!where.ends_with(".json")) file += "/tokenizer.json";
  const SortedJson json = parse_sorted_json(text, file, {.max_bytes = kMaxTokenizerFileBytes});
  const spec::Part root(json, std::string(where) + ": tokenizer");
  if (root.text("version") != "1.0")
    fail(ErrorKind::data, "{}.version = '{}', must be '1.0'", root.where(), root.text("version"));
  root.must_be_unset("truncation");
  root.must_be_unset("padding");

  TokenizerSpec spec;
  const auto path = [&root](const char* key) { return root.where() + "." + key; };
  const bool pieces = spec::has_pieces(root);
  if (pieces) spec.pieces.emplace();
  (pieces ? spec::read_piece_model : spec::read_model)(root.part("model"), spec);
  spec::read_added_tokens(root.at("added_tokens"), path("added_tokens"), spec);
  if (pieces) {
    spec::read_piece_normalizer(root.at("normalizer"), path("normalizer"), spec);
    spec::read_piece_pre_tokenizer(root.at("pre_tokenizer"), path("pre_tokenizer"), spec);
    spec::read_piece_decoder(root.at("decoder"), path("decoder"), spec);
  } else {
    spec::read_normalizer(root.at("normalizer"), path("normalizer"), spec);
    spec::read_pre_tokenizer(root.at("pre_tokenizer"), path("pre_tokenizer"), spec);
    spec::check_decoder(root.at("decoder"), path("decoder"));
  }
  spec::read_post_processor(root.at("post_processor"), path("post_processor"), spec);
  check_special_ids(spec, path("post_processor"));
  return spec;
}

}  // namespace trireme::text
