// Anyone's data without code: a table or arrays in one file, or in two, with the column or array that is to be
// predicted. Text (CSV), NumPy's .npy and .npz, and safetensors.
#pragma once

#include <optional>

#include "invar/data/dataset.h"

namespace invar {

struct TableOptions {
    std::string path = {};
    std::string test_path = {};  // the test split; "": a share of the first file
    // What is predicted: a column of a CSV file or of the one array of .npy, by name or number; else an array's name.
    std::string target = {};
    std::string input = {};  // the array that is x; "": "x", or the only one beside the target
    enum class Predict : std::uint8_t { automatic, classes, numbers };
    Predict predict = Predict::automatic;  // classes where the target is words or whole numbers
    double test_share = 0.2;
    std::uint64_t seed = 0;  // chooses the samples of that share
    char separator = 0;
    std::optional<bool> header = {};  // see CsvOptions
};

// x is f32 [n, ...]; y is i64 [n], numbering the classes in their order, or f32 [n, outputs].
class TableDataset final : public Dataset {
  public:
    struct Content {
        std::string name;
        Tensor x, y;                     // of the whole file
        std::vector<std::int64_t> rows;  // of it that are this split
        std::int64_t outputs = 0;
        DataDescription description;
    };
    explicit TableDataset(Content content) : content_(std::move(content)) {}
    std::string name() const override { return content_.name; }
    std::int64_t size() const override { return std::int64_t(content_.rows.size()); }
    DataInfo info() const override;
    DataDescription description() const override { return content_.description; }
    Batch read(std::span<const std::int64_t> indices) const override;

  private:
    Content content_;
};

struct Table {
    std::shared_ptr<const TableDataset> train, test;
    std::vector<std::string> classes;  // what each label stands for; empty where numbers are predicted
};

// Throws IoError for files that are damaged or hold values that are missing, with row and column, and UsageError for
// names that are not there.
Table load_table(const TableOptions& options);

}  // namespace invar
