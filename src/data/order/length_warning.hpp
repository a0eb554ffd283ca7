#pragma once
#include <string>
#include <string_view>

#include "data/order/samples.hpp"

namespace trireme::data {

/// Describes the data that a set loses because its samples are shorter than the packed length; ""
/// if nothing is lost. `option` names the setting of the length: "train.seq_len =". Throws like
/// length_loss.
std::string length_warning(const SampleSet& samples, std::string_view option);

}  // namespace trireme::data
