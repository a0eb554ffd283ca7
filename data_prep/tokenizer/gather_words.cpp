#include <cstring>
#include <numeric>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/tokenizer/count_words.hpp"

/// The message format between ranks. Each word has its count (8 bytes), its length in bytes (4), a
/// flag for reserved tokens that were cut out (1), and its bytes.
namespace trireme::data_prep {
namespace {

using Bytes = std::vector<char>;

void put(std::string_view word, std::uint64_t count, bool cut, Bytes& out) {
  const auto length = static_cast<std::uint32_t>(word.size());
  char head[13];
  std::memcpy(head, &count, 8);
  std::memcpy(head + 8, &length, 4);
  head[12] = cut ? 1 : 0;
  out.insert(out.end(), head, head + sizeof head);
  out.insert(out.end(), word.begin(), word.end());
}

void take_all(const Bytes& bytes, text::WordCounter& words) {
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t count = 0;
    std::uint32_t length = 0;
    std::memcpy(&count, bytes.data() + at, 8);
    std::memcpy(&length, bytes.data() + at + 8, 4);
    const std::string_view word(bytes.data() + at + 13, length);
    bytes[at + 12] != 0 ? words.add_cut_token(word, count) : words.add_word(word, count);
    at += 13 + length;
  }
}

/// Calls visit(word, count, cut) for every word.
template <class Visit>
void for_each_word(const text::WordCounter& words, Visit&& visit) {
  words.pieces().for_each(
      [&](std::string_view word, std::uint64_t count) { visit(word, count, false); });
  for (const auto& [token, count] : words.cut_tokens()) visit(token, count, true);
}

/// Sends parts[r] to rank r and returns what the other ranks send to this rank.
Bytes exchange_parts(const std::vector<Bytes>& parts, comm::Communicator& world) {
  std::vector<std::uint64_t> send;
  Bytes outgoing;
  for (const Bytes& part : parts) {
    send.push_back(part.size());
    outgoing.insert(outgoing.end(), part.begin(), part.end());
  }
  const std::vector<std::uint64_t> ones(parts.size(), 1);
  std::vector<std::uint64_t> receive(parts.size());
  world
      .all_to_all({.input = send.data(),
                   .send_counts = ones,
                   .output = receive.data(),
                   .receive_counts = ones,
                   .dtype = DType::u64,
                   .tag = "word bytes"})
      ->wait();
  Bytes incoming(std::accumulate(receive.begin(), receive.end(), std::uint64_t{0}));
  world
      .all_to_all({.input = outgoing.data(),
                   .send_counts = send,
                   .output = incoming.data(),
                   .receive_counts = receive,
                   .dtype = DType::u8,
                   .tag = "words"})
      ->wait();
  return incoming;
}

}  // namespace

void gather_words(text::WordCounter& words, comm::Communicator& world) {
  const auto size = static_cast<std::size_t>(world.size());
  if (size == 1) return;
  std::vector<Bytes> parts(size);
  for_each_word(words, [&](std::string_view word, std::uint64_t count, bool cut) {
    put(word, count, cut, parts[xxh3_64(word) % size]);
  });
  words.clear();
  take_all(exchange_parts(parts, world), words);  // now each word is on exactly one rank
  parts.assign(size, {});
  for_each_word(words, [&](std::string_view word, std::uint64_t count, bool cut) {
    put(word, count, cut, parts[0]);
  });
  words.clear();
  const Bytes all = exchange_parts(parts, world);
  if (world.rank() == 0) take_all(all, words);
}

}  // namespace trireme::data_prep
