#pragma once
#include <string>
#include <string_view>

#include "data/order/samples.hpp"

namespace trireme {

/// Describes what a data set loses because its samples are shorter than the packed length; "" if it
/// loses nothing. `option` names the key of the length: "train.seq_len =". Throws as length_loss.
std::string length_warning(const SampleSet& samples, std::string_view option);

}  // namespace trireme
