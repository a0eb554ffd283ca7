#include <utility>

#include "core/error.hpp"
#include "data/shards/schema.hpp"
#include "data/shards/shard_reader.hpp"

namespace trireme::data {
namespace {

/// Converts a [S, 2] table to spans.
std::vector<Span> to_spans(const std::vector<std::uint32_t>& numbers) {
  std::vector<Span> spans(numbers.size() / 2);
  for (std::size_t i = 0; i < spans.size(); ++i) spans[i] = {numbers[2 * i], numbers[2 * i + 1]};
  return spans;
}

void check_spans(std::span<const Span> spans, std::uint64_t limit, const std::string& where) {
  std::uint32_t last = 0;
  for (const Span& span : spans) {
    if (span.begin < last || span.end <= span.begin || span.end > limit)
      fail(ErrorKind::data, "{}: spans overlap or exceed the document", where);
    last = span.end;
  }
}

}  // namespace

void TokenShard::check_target_shape() const {
  const std::uint64_t documents = meta_.counts.documents;
  if (tables_.contains(schema::kDocLine)) expect_table(schema::kDocLine, DType::u32, documents);
  for (const NumberColumn& column : contents().numbers)
    expect_table(column.name, DType::u32, documents);
  for (const SpanColumn& column : contents().spans) {
    expect_table(column.ptr, DType::u64, documents + 1);
    expect_table(column.span, DType::u32, table(column.span).count);
  }
  for (const TextColumn& column : contents().texts) {
    expect_table(column.ptr, DType::u64, documents + 1);
    expect_table(column.bytes, DType::u8, table(column.bytes).count);
  }
}

std::vector<Span> TokenShard::read_spans(const char* ptr, const char* span, std::uint64_t doc,
                                         std::uint64_t limit) const {
  const auto ends = read_table<std::uint64_t>(ptr, doc, 2);
  const std::uint64_t stored = table(span).count / 2;
  if (ends[1] < ends[0] || ends[1] > stored)
    fail(ErrorKind::data, "{}: {} is invalid at document {}", path_.string(), ptr, doc);
  std::vector<Span> spans =
      to_spans(read_table<std::uint32_t>(span, 2 * ends[0], 2 * (ends[1] - ends[0])));
  check_spans(spans, limit, formatted("{}: {} of document {}", path_.string(), span, doc));
  return spans;
}

std::vector<Span> TokenShard::target_spans(std::uint64_t doc) const {
  const auto ends = read_table<std::uint64_t>(schema::kDocOffset, doc, 2);
  return read_spans(schema::kLossPtr, schema::kLossSpan, doc, ends[1] - ends[0]);
}

SpanTable TokenShard::read_span_table(const char* ptr, const char* span,
                                      std::span<const std::uint64_t> limits) const {
  SpanTable result;
  result.ptr = read_table<std::uint64_t>(ptr, 0, num_documents() + 1);
  result.spans = to_spans(read_table<std::uint32_t>(span, 0, table(span).count));
  const std::string where = formatted("{}: {}", path_.string(), span);
  for (std::uint64_t doc = 0; doc < num_documents(); ++doc) {
    if (result.ptr[doc + 1] < result.ptr[doc] || result.ptr[doc + 1] > result.spans.size())
      fail(ErrorKind::data, "{}: {} is invalid at {}", path_.string(), ptr, doc);
    check_spans(result.of(doc), limits[doc], where);
  }
  return result;
}

SpanTable TokenShard::target_spans() const {
  const auto offsets = document_offsets();
  std::vector<std::uint64_t> limits;
  for (std::uint64_t doc = 0; doc < num_documents(); ++doc)
    limits.push_back(offsets[doc + 1] - offsets[doc]);
  return read_span_table(schema::kLossPtr, schema::kLossSpan, limits);
}

std::uint32_t TokenShard::number(const char* column, std::uint64_t doc) const {
  return read_table<std::uint32_t>(column, doc, 1)[0];
}

PairShape TokenShard::pair_shape(std::uint64_t doc) const {
  PairShape shape;
  shape.prompt_len = number(schema::kPairPrompt, doc);
  shape.chosen_len = number(schema::kPairChosen, doc);
  shape.rejected_len = number(schema::kPairRejected, doc);
  const std::uint64_t prompt = shape.prompt_len;
  shape.chosen =
      read_spans(schema::kChosenPtr, schema::kChosenSpan, doc, prompt + shape.chosen_len);
  shape.rejected =
      read_spans(schema::kRejectedPtr, schema::kRejectedSpan, doc, prompt + shape.rejected_len);
  return shape;
}

Pair TokenShard::pair(std::uint64_t doc) const {
  PairShape shape = pair_shape(doc);
  const auto ends = read_table<std::uint64_t>(schema::kDocOffset, doc, 2);
  const std::uint64_t total =
      std::uint64_t{shape.prompt_len} + shape.chosen_len + shape.rejected_len;
  if (ends[1] < ends[0] || ends[1] - ends[0] != total) {
    fail(ErrorKind::data, "{}: the lengths of pair {} do not match its document", path_.string(),
         doc);
  }
  Pair result;
  result.prompt_len = shape.prompt_len;
  const auto fill = [&](Pair::Side& side, std::uint64_t begin, std::uint32_t length) {
    side.ids.resize(std::size_t{shape.prompt_len} + length);
    read_tokens(ends[0], std::span(side.ids).first(shape.prompt_len));
    read_tokens(begin, std::span(side.ids).last(length));
  };
  fill(result.chosen, ends[0] + shape.prompt_len, shape.chosen_len);
  fill(result.rejected, ends[0] + shape.prompt_len + shape.chosen_len, shape.rejected_len);
  result.chosen.targets = std::move(shape.chosen);
  result.rejected.targets = std::move(shape.rejected);
  return result;
}

PairTable TokenShard::pairs() const {
  PairTable table = pair_lengths();
  std::vector<std::uint64_t> chosen;
  std::vector<std::uint64_t> rejected;
  for (std::uint64_t doc = 0; doc < num_documents(); ++doc) {
    chosen.push_back(std::uint64_t{table.prompt_len[doc]} + table.chosen_len[doc]);
    rejected.push_back(std::uint64_t{table.prompt_len[doc]} + table.rejected_len[doc]);
  }
  table.chosen = read_span_table(schema::kChosenPtr, schema::kChosenSpan, chosen);
  table.rejected = read_span_table(schema::kRejectedPtr, schema::kRejectedSpan, rejected);
  return table;
}

PairTable TokenShard::pair_lengths() const {
  PairTable table;
  table.prompt_len = read_table<std::uint32_t>(schema::kPairPrompt, 0, num_documents());
  table.chosen_len = read_table<std::uint32_t>(schema::kPairChosen, 0, num_documents());
  table.rejected_len = read_table<std::uint32_t>(schema::kPairRejected, 0, num_documents());
  return table;
}

std::vector<std::uint32_t> TokenShard::document_lines() const {
  if (!tables_.contains(schema::kDocLine)) return {};
  return read_table<std::uint32_t>(schema::kDocLine, 0, num_documents());
}

}  // namespace trireme::data
