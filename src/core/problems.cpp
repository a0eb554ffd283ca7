#include "core/problems.hpp"

#include <algorithm>

#include "core/edit_distance.hpp"

namespace trireme {

void Problems::one_of(const std::string& key,
                      const std::string& value,
                      std::span<const std::string> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string list;
  for (const std::string& name : allowed) list += (list.empty() ? "" : ", ") + name;
  add(key, value, cat("must be one of ", list, did_you_mean(value, allowed)));
}

std::string Problems::place_of(const std::string& key) const {
  const std::string place = place_ ? place_(key) : "";
  return place.empty() || place == "default" ? "" : cat(" (", place, ")");
}

void Problems::throw_if_any() const {
  if (lines_.empty()) return;
  std::string message = lines_.front();
  for (std::size_t i = 1; i < lines_.size(); ++i) message += '\n' + lines_[i];
  throw Error(ErrorKind::usage, message);
}

}  // namespace trireme
