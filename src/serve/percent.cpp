#include "serve/percent.hpp"

#include <charconv>

namespace trireme {

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char* const digits = text.data() + i + 1;
    unsigned char byte = 0;
    const bool is_coded = text[i] == '%' && text.size() - i > 2 &&
                          std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    decoded += is_coded ? static_cast<char>(byte) : text[i];
    if (is_coded) i += 2;
  }
  return decoded;
}

}  // namespace trireme
