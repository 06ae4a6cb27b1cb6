// How tables look to those who read them.
#include <algorithm>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Console : public CliTest {
  protected:
    // A file of one tensor, most of whose values are 1; `small` of them are too small for FP16.
    void write_tensor(const char* file, std::size_t values, std::size_t small) const {
        std::vector<float> data(values, 1.0F);
        std::fill_n(data.begin(), small, 1e-12F);
        const std::string header = R"({"w":{"dtype":"F32","shape":[)" + std::to_string(values) +
                                   R"(],"data_offsets":[0,)" + std::to_string(4 * values) + "]}}";
        const std::uint64_t length = header.size();
        std::ofstream out(folder_ / file, std::ios::binary);
        out.write(reinterpret_cast<const char*>(&length), sizeof length);
        out << header;
        out.write(reinterpret_cast<const char*>(data.data()), std::streamsize(4 * values));
    }
};

TEST_F(Console, ABoundIsANumberAndStaysUnderTheEndOfItsHeader) {
    write_tensor("few.safetensors", 40'000, 1);
    const Result result = invar({"inspect", "few.safetensors", "--as", "fp16"});
    ASSERT_EQ(result.code, 0) << result.err;
    std::istringstream text(result.out);
    std::size_t end = 0, rows = 0;
    for (std::string line; std::getline(text, line);) {
        if (line.ends_with("then lost")) end = line.size();
        if (!line.ends_with("<0.01%")) continue;
        EXPECT_EQ(line.size(), end) << result.out;
        ++rows;
    }
    EXPECT_EQ(rows, 2u) << result.out;
}

}  // namespace
}  // namespace invar::cli
