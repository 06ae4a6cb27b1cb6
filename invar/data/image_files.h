// Folders of image files: what is in them, in an order that does not depend on the file system, and a look at each
// file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace invar {

struct ImageFiles {
    std::vector<std::filesystem::path> files;  // sorted; with a suffix of JPEG, PNG or WebP, whatever they hold
    std::int64_t others = 0;                   // images by their suffix, of a format that is not read
    std::string first_other;                   // the first of them
};

// Of a folder and those in it. Hidden files, and files that are no images by their suffix, are passed over.
ImageFiles image_files_in(const std::filesystem::path& folder);
// Folders right in this one, by name, without hidden ones.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder);

struct BrokenFile {
    std::size_t index = 0;
    std::string why;  // one line that names the file
};
// Reads and decodes all files, on several threads, and says which cannot be.
std::vector<BrokenFile> find_broken_images(const std::vector<std::filesystem::path>& files);
// "3 of 100 images cannot be read and are left out; the first: FILE: not an image ..."
std::string broken_note(const std::vector<BrokenFile>& broken, std::size_t all);

}  // namespace invar
