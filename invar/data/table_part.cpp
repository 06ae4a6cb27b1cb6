// data=table: a table of anyone's, by its path and the column that is to be predicted.
#include <fmt/format.h>

#include <filesystem>
#include <mutex>

#include "invar/core/error.h"
#include "invar/data/registry.h"
#include "invar/data/table.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

struct TableKeys {
    std::string path, test_path, target, input;
    std::string predict = "auto", separator = "auto", header = "auto";
    double test_share = 0.2;
};

char separator_called(const std::string& name) {
    if (name == "comma") return ',';
    if (name == "semicolon") return ';';
    if (name == "tab") return '\t';
    return name == "bar" ? '|' : '\0';
}

// What two files are read by, and when they were written last.
std::string identity_of(const TableOptions& o) {
    std::string text =
        fmt::format("{}\n{}\n{}\n{}\n{} {} {} {} {}", o.path, o.test_path, o.target, o.input, int(o.predict),
                    o.test_share, o.seed, int(o.separator), o.header ? int(*o.header) : -1);
    for (const std::string& file : {o.path, o.test_path}) {
        std::error_code ignored;
        text += fmt::format(" {} {}", fs::file_size(file, ignored),
                            fs::last_write_time(file, ignored).time_since_epoch().count());
    }
    return text;
}

// Both splits come from one reading: what was read last is kept for as long as somebody has a part of it.
std::shared_ptr<const Table> load_once(const TableOptions& options) {
    static std::mutex mutex;
    static std::string last;
    static std::weak_ptr<const Table> kept;
    const std::lock_guard lock(mutex);
    const std::string identity = identity_of(options);
    std::shared_ptr<const Table> table = identity == last ? kept.lock() : nullptr;
    if (!table) table = std::make_shared<const Table>(load_table(options));
    last = identity;
    kept = table;
    return table;
}

std::shared_ptr<const Dataset> open_table(const TableKeys& keys, Split split, std::uint64_t seed) {
    check<UsageError>(!keys.path.empty(), "data=table needs data.path, the file of the table");
    check<UsageError>(!keys.target.empty(),
                      "data=table needs data.target, the column or array that is to be predicted");
    using Predict = TableOptions::Predict;
    TableOptions options;
    options.path = keys.path;
    options.test_path = keys.test_path;
    options.target = keys.target;
    options.input = keys.input;
    options.predict = keys.predict == "classes"   ? Predict::classes
                      : keys.predict == "numbers" ? Predict::numbers
                                                  : Predict::automatic;
    options.test_share = keys.test_share;
    options.seed = seed;
    options.separator = separator_called(keys.separator);
    if (keys.header != "auto") options.header = keys.header == "true";
    const std::shared_ptr<const Table> table = load_once(options);
    return {table, split == Split::train ? table->train.get() : table->test.get()};
}

const RegisterData<TableKeys> kTable{
    "table",
    "A table of your own: text (CSV), .npy, .npz or .safetensors.",
    open_table,
    {key("path", &TableKeys::path, any(), "Its file."),
     key("test_path", &TableKeys::test_path, any(), "The file to validate on; empty for a share of the first."),
     key("target", &TableKeys::target, any(),
         "What is predicted: a column by name, or by number from 0 (-1 is the last), or an array by name."),
     key("input", &TableKeys::input, any(), "The array that is x; empty for x, or the only one beside the target."),
     key("predict", &TableKeys::predict, one_of({"auto", "classes", "numbers"}),
         "What the target is, for task=classification and task=regression; auto: classes where it is words, or numbers "
         "that are all whole."),
     key("test_share", &TableKeys::test_share, custom("above 0 and below 1", [](double v) { return v > 0 && v < 1; }),
         "Share of the rows to validate on, chosen by the seed; with a test_path it has no meaning."),
     key("separator", &TableKeys::separator, one_of({"auto", "comma", "semicolon", "tab", "bar"}),
         "Between cells of text; auto: what the first line has most of."),
     key("header", &TableKeys::header, one_of({"auto", "true", "false"}),
         "Whether the first line of text names the columns; auto: where a cell of it is no number and all below it "
         "are.")}};

}  // namespace

}  // namespace invar
