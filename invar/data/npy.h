// Arrays as NumPy saves them: one in an .npy file, several by name in an .npz archive.
#pragma once

#include <map>

#include "invar/core/tensor.h"
#include "invar/data/zip.h"

namespace invar {

bool is_npy(std::span<const std::uint8_t> bytes);

struct NpyHeader {
    std::string descr;        // NumPy's name of the type: "<f4"
    bool is_numbers = false;  // of 1, 2, 4 or 8 bytes; width and end() mean nothing of others
    char kind = 0;            // f, i, u or b
    std::size_t width = 0;    // bytes of an element
    bool big_endian = false, fortran = false;
    Shape shape;
    std::size_t begin = 0;  // of the data
    std::size_t count = 0;  // of elements
    std::size_t end() const { return begin + count * width; }
};
inline constexpr std::size_t kMostNpyHeader = (64 << 10) + 12;  // names of fields apart, it has some hundred bytes
// From the first bytes of a file, so many or all there are. Throws IoError for what is damaged, or claims more than
// `most` bytes of data.
NpyHeader parse_npy_header(std::span<const std::uint8_t> bytes, const std::string& file, std::size_t most);

// Numbers of any width, byte order and memory order, as a dense tensor: floats keep their width; of whole numbers i64,
// i32, u8 and bool do, and others become i64. Throws IoError for what is damaged, no array of numbers, or too large.
Tensor parse_npy(std::span<const std::uint8_t> bytes, const std::string& file);

// The arrays of an archive by the names they were saved under, without ".npy". Each is read when it is asked for: what
// nobody asks for may be anything. The bytes must outlive this.
class NpzFile {
  public:
    NpzFile(std::span<const std::uint8_t> archive, const std::string& file);
    std::vector<std::string> names() const;
    bool holds_numbers(const std::string& name) const;
    Tensor array(const std::string& name) const;

  private:
    const ZipEntry& find(const std::string& name) const;
    std::string file_;
    std::map<std::string, ZipEntry> entries_;
};

// "row 3, column 2" of an element, by its number.
std::string place_of(std::size_t element, const Shape& shape);

}  // namespace invar
