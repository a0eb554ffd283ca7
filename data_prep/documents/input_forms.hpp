#pragma once
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/input/input_format.hpp"

namespace trireme::data_prep {

/// Returns the record form of each input, for DocumentRules::forms: the value of --format, or the
/// form of the first record with a known form. Returns an empty list for texts and with --fields.
/// Rank 0 logs the forms. Collective.
std::vector<const text::RecordForm*> find_record_forms(const std::vector<InputFile>& files,
                                                       const DocumentRules& rules,
                                                       comm::Communicator& world);

/// Returns `record_format` of the manifest: the names of the forms in the order of the inputs, "text"
/// for texts, "fields" with --fields.
std::string record_format(const DocumentRules& rules);

}  // namespace trireme::data_prep
