// Checksums in the metadata of a safetensors file: one of its header and one of each tensor, so that damage is found
// and named. Files of other programs have none; readers that do not know them see two more texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "invar/io/safetensors_header.h"

namespace invar {

// The tensors' in file order, and room for the header's own, which seal_head fills in.
void add_sums(Metadata& metadata, std::span<const std::uint32_t> tensors);
void seal_head(std::string& head);

// Moves what the metadata says into the entries. Throws IoError where the header is not as it was written; false
// where there are no checksums.
bool take_sums(std::string_view head, SafetensorsHeader& header, std::string_view source);

}  // namespace invar
