#include "data/shards/document_columns.hpp"

#include <utility>

namespace trireme {
namespace {

template <class T>
void add_all(const std::vector<T>& later, std::vector<T>& column) {
  column.insert(column.end(), later.begin(), later.end());
}

}  // namespace

void DocumentColumns::append(DocumentColumns&& later, std::uint64_t first_line) {
  for (std::vector<std::byte>& part : later.token_parts) token_parts.push_back(std::move(part));
  const std::uint64_t num_tokens = offset.back();
  for (std::size_t i = 1; i < later.offset.size(); ++i)
    offset.push_back(num_tokens + later.offset[i]);
  add_all(later.source, source);
  add_all(later.source_offset, source_offset);
  add_all(later.text_xxh3, text_xxh3);
  for (const std::uint32_t number : later.line)
    line.push_back(static_cast<std::uint32_t>(first_line + number));
  targets.append(later.targets);
  counts += later.counts;
}

}  // namespace trireme
