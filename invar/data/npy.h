// Arrays as NumPy saves them: one in an .npy file, several by name in an .npz archive.
#pragma once

#include <map>

#include "invar/core/tensor.h"
#include "invar/data/file_bytes.h"

namespace invar {

bool is_npy(std::span<const std::uint8_t> bytes);
// Numbers of any width, byte order and memory order, as a dense tensor: floats keep their width; of whole numbers i64,
// i32, u8 and bool do, and others become i64. Throws IoError for what is damaged, no array of numbers, or too large.
Tensor parse_npy(std::span<const std::uint8_t> bytes, const std::string& file);
// By the names they were saved under, without ".npy".
std::map<std::string, Tensor> parse_npz(std::span<const std::uint8_t> archive, const std::string& file);

}  // namespace invar
