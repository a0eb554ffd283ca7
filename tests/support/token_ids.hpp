#pragma once
#include <cstdint>
#include <string_view>

#include "core/error.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// Returns the first token id for these bytes.
inline std::uint32_t id_of_bytes(const text::Tokenizer& tokenizer, std::string_view bytes) {
  for (std::uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.token_bytes(id) == bytes) return id;
  }
  fail(ErrorKind::internal, "no token is '{}'", bytes);
}

}  // namespace trireme
