#include "model/layer_list.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::model {

std::vector<std::int64_t> parse_layers(std::string_view text) {
  std::vector<std::int64_t> layers;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const auto layer = parse_integer(rest.substr(0, end));
    if (!layer || *layer < 0 || (!layers.empty() && *layer <= layers.back()) ||
        end + 1 == rest.size())
      fail(ErrorKind::usage, "'{}' must be a list of ascending layers from 0: 3,7,11", text);
    layers.push_back(*layer);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return layers;
}

std::string layers_text(const std::vector<std::int64_t>& layers) {
  return joined(layers, ",");
}

}  // namespace trireme::model
