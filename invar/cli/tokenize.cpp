// `invar tokenize`: text files to one file of tokens, with a tokenizer that is given or learned from them.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/signals.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/jsonl.h"
#include "invar/report/text.h"
#include "invar/text/tokenize_files.h"
#include "invar/text/train_bpe.h"

namespace invar::cli {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct TokenizeArguments {
    std::vector<std::string> texts;
    std::string output, tokenizer, save, format, eot = "between";
    std::string train_text;  // as it was written: the parser would make a large number of a negative one
    std::size_t train = 0;   // 0: a tokenizer is given
    int threads = 0;
    bool json = false, force = false;
};

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// A live line for work of which so many parts are done; says whether to go on.
class WorkLine {
  public:
    WorkLine(std::string what, std::uint64_t total, bool quiet)
        : what_(std::move(what)), total_(total), quiet_(quiet) {}

    bool show(std::uint64_t done) {
        if (!quiet_ && line_.due()) {
            const double share = total_ == 0 ? 0.0 : std::min(1.0, double(done) / double(total_));
            const double spent = seconds_since(start_);
            line_.show(
                {fmt::format("{}  {} {:3.0f}%", what_, bar(share, terminal_width() >= 100 ? 24 : 12), 100 * share),
                 "ETA " + (share > 0.01 ? clock_time(spent * (1 - share) / share) : std::string("-:--"))});
        }
        return !StopOnSignal::requested();
    }

  private:
    std::string what_;
    std::uint64_t total_;
    bool quiet_;
    LiveLine line_;
    Clock::time_point start_ = Clock::now();
};

struct Interrupted : Error {
    Interrupted() : Error(fmt::format("interrupted by {}; nothing was written", StopOnSignal::name())) {}
};

// A text may also come by a pipe, but only once.
std::uint64_t total_bytes(const std::vector<fs::path>& files) {
    std::uint64_t bytes = 0;
    for (const fs::path& file : files) bytes += Descriptor::open_stream(file).size();
    return bytes;
}

text::LearnedBpe learn(const TokenizeArguments& a, const std::vector<fs::path>& files, text::FilePartsOptions options,
                       std::uint64_t bytes) {
    for (const fs::path& file : files) {
        std::error_code ignored;
        check<UsageError>(fs::is_regular_file(file, ignored),
                          "{}: --train reads the texts twice, which only an ordinary file allows", file.string());
    }
    text::WordCounts counts;
    {
        WorkLine line("counting words", bytes, a.json);
        options.progress = [&](std::uint64_t done) { return line.show(done); };
        if (!text::count_words(files, options, counts)) throw Interrupted();
    }
    WorkLine line("learning tokens", a.train - text::kSmallestVocabulary, a.json);
    text::LearnedBpe learned = text::train_bpe(counts, a.train, [&](std::size_t done) { return line.show(done); });
    if (StopOnSignal::requested()) throw Interrupted();
    return learned;
}

text::Separator separator_of(const TokenizeArguments& a, const text::Tokenizer& tokenizer) {
    check<UsageError>(a.eot == "between" || a.eot == "after" || a.eot == "none",
                      "--eot {}: it is one of between, after, none", printable(a.eot).substr(0, 80));
    if (a.eot == "none") return {};
    check<UsageError>(a.eot == "between" || tokenizer.end_of_text(), "--eot after: {} has no token that ends a text",
                      tokenizer.name());
    return {tokenizer.end_of_text(), a.eot == "after"};
}

fs::path save_path(const TokenizeArguments& a) {
    return a.save.empty() ? fs::path(a.output).parent_path() / "tokenizer.json" : fs::path(a.save);
}

std::size_t parse_train(const std::string& text) {
    if (text.empty()) return 0;
    std::size_t tokens = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
    check<UsageError>(
        error == std::errc() && end == text.data() + text.size() && tokens >= text::kSmallestVocabulary,
        "--train {}: it takes a whole number of tokens, at least {}, since the bytes and {} alone make {}",
        printable(text).substr(0, 80), text::kSmallestVocabulary, text::kEndOfText, text::kSmallestVocabulary);
    return tokens;
}

// Also where neither is there yet.
bool is_same_file(const fs::path& a, const fs::path& b) {
    std::error_code error;
    if (fs::equivalent(a, b, error)) return true;
    const fs::path first = fs::weakly_canonical(fs::absolute(a, error), error);
    return !first.empty() && first == fs::weakly_canonical(fs::absolute(b, error), error);
}

// --force replaces what an earlier run has written, never what this one reads.
void check_outputs(const TokenizeArguments& a) {
    check<UsageError>(a.train == 0 || !is_same_file(a.output, save_path(a)),
                      "{}: the tokens and the tokenizer cannot both go there; name another file with -o or --save",
                      a.output);
    std::vector<fs::path> read(a.texts.begin(), a.texts.end()), written = {a.output};
    if (!a.tokenizer.empty() && a.tokenizer != "bytes")
        read.insert(read.end(), {a.tokenizer, fs::path(a.tokenizer) / "tokenizer.json"});
    if (a.train > 0) written.push_back(save_path(a));
    std::error_code ignored;
    for (const fs::path& file : written) {
        for (const fs::path& input : read)
            check<UsageError>(!is_same_file(file, input),
                              "{}: it is read, and would be replaced; write to another file", file.string());
        check<UsageError>(a.force || !fs::exists(file, ignored), "{} exists already; --force replaces it",
                          file.string());
    }
}

void check_arguments(TokenizeArguments& a) {
    a.train = parse_train(a.train_text);
    check<UsageError>(!a.output.empty(), "say where the tokens go, as in: -o data.bin");
    check<UsageError>(a.train == 0 || a.tokenizer.empty(), "--train learns a tokenizer; leave out --tokenizer");
    check<UsageError>(a.train > 0 || !a.tokenizer.empty(),
                      "say by which tokenizer: --tokenizer FILE, --tokenizer bytes, or --train N to learn one");
    check<UsageError>(a.save.empty() || a.train > 0, "--save is for the tokenizer that --train learns");
    check<UsageError>(a.threads >= 0, "--threads {}: must be at least 0", a.threads);
    check_outputs(a);
}

void tokenize(TokenizeArguments& a) {
    check_arguments(a);
    const text::TokenFormat format =
        a.format.empty() ? text::TokenFormat::automatic : text::parse_token_format(a.format);
    const std::vector<fs::path> files(a.texts.begin(), a.texts.end());
    const std::uint64_t bytes = total_bytes(files);
    const Clock::time_point start = Clock::now();
    text::FilePartsOptions options;
    options.threads = a.threads;

    std::optional<text::LearnedBpe> learned;
    if (a.train > 0) learned = learn(a, files, options, bytes);
    const text::Tokenizer tokenizer = learned
                                          ? text::parse_tokenizer(text::tokenizer_json(*learned), save_path(a).string())
                                          : text::tokenizer_by_name(a.tokenizer);
    const text::Separator separator = separator_of(a, tokenizer);

    text::TokenWriter writer(a.output, format, tokenizer.vocabulary_size());
    std::vector<text::TokenizedFile> done;
    {
        WorkLine line("tokenizing", bytes, a.json);
        options.progress = [&](std::uint64_t so_far) { return line.show(so_far); };
        if (!text::tokenize_files(tokenizer, files, separator, options, writer, done)) throw Interrupted();
    }
    check<UsageError>(writer.count() > 0, "there is nothing to tokenize: {} empty",
                      files.size() == 1 ? "the file is" : "all files are");
    if (learned) text::save_tokenizer_json(save_path(a), *learned);
    writer.commit();
    const double seconds = seconds_since(start);

    text::TokenizedFile total;
    for (const text::TokenizedFile& file : done) total = {total.bytes + file.bytes, total.tokens + file.tokens};
    if (a.json) {
        JsonLine line;
        line.add("output", a.output).add("format", writer.format_name()).add("tokenizer", tokenizer.name());
        line.add("vocabulary", tokenizer.vocabulary_size()).add("files", files.size()).add("bytes", total.bytes);
        line.add("tokens", total.tokens).add("bytes_per_token", double(total.bytes) / double(total.tokens));
        say(line.add("seconds", seconds).text());
        return;
    }
    Table table({"file", "bytes", "tokens", "bytes/token", "time"});
    const auto row = [&](const std::string& name, const text::TokenizedFile& file, const std::string& time) {
        table.row({name, human_count(std::int64_t(file.bytes)), human_count(std::int64_t(file.tokens)),
                   file.tokens == 0 ? "-" : fmt::format("{:.2f}", double(file.bytes) / double(file.tokens)), time});
    };
    constexpr std::size_t kMostRows = 20;
    for (std::size_t i = 0; i < files.size() && i < kMostRows && files.size() > 1; ++i)
        row(printable(files[i].string()), done[i], "");
    row(files.size() == 1 ? printable(files[0].string()) : count_of(std::int64_t(files.size()), "file"), total,
        human_seconds(seconds));
    print(table.text("  "));
    if (learned && learned->vocabulary_size() < a.train)
        say(fmt::format("no pair of tokens comes twice any more: {} learned, of the {} asked for",
                        human_count(std::int64_t(learned->vocabulary_size())), human_count(std::int64_t(a.train))));
    if (learned)
        say(fmt::format("{}: {} tokens", save_path(a).string(),
                        human_count(std::int64_t(tokenizer.vocabulary_size()))));
    say(fmt::format("{}: {} of {} ({}), {}/s", a.output, count_of(std::int64_t(total.tokens), "token"),
                    human_count(std::int64_t(tokenizer.vocabulary_size())), writer.format_name(),
                    human_bytes(double(total.bytes) / std::max(seconds, 1e-9))));
}

}  // namespace

void add_tokenize(CLI::App& app, int& exit_code) {
    CLI::App* command =
        app.add_subcommand("tokenize", "Make a file of tokens from texts, and learn a tokenizer from them");
    auto arguments = std::make_shared<TokenizeArguments>();
    TokenizeArguments& a = *arguments;
    command->add_option("texts", a.texts, "Text files of any size; each is a document")
        ->required()
        ->option_text("TEXT ...");
    command->add_option("-o,--output", a.output, "The file of tokens to write")->option_text("FILE.bin");
    command->add_option("--tokenizer", a.tokenizer, "A tokenizer.json or its folder, or `bytes` for a token a byte")
        ->option_text("FILE|bytes");
    command->add_option("--train", a.train_text, "Learn a byte-level BPE of so many tokens from the texts")
        ->option_text("N");
    command->add_option("--save", a.save, "Where to write it; tokenizer.json beside the output by default")
        ->option_text("FILE");
    command->add_option("--eot", a.eot, "Where the token that ends a text goes: between files, after each, or none")
        ->option_text("between|after|none");
    command->add_option("--format", a.format, "uint16 where the vocabulary fits, otherwise llmc")
        ->option_text("uint16|uint32|llmc");
    command->add_option("--threads", a.threads, "Threads; 0 for one per core")->option_text("N");
    command->add_flag("--force", a.force, "Replace files that are there");
    command->add_flag("--json", a.json, "One JSON object instead of the table");
    command->footer(example({"invar tokenize book.txt --train 4096 -o book.bin",
                             "invar tokenize more.txt --tokenizer tokenizer.json -o more.bin",
                             "invar tokenize *.txt --tokenizer bytes -o bytes.bin --json"}) +
                    read_more("TEXT.md", "tells which tokenizers are read, and what the file holds"));
    command->callback([arguments, &exit_code] {
        const StopOnSignal signals;
        try {
            tokenize(*arguments);
        } catch (const Interrupted& error) {
            warn(error.what());
            exit_code = StopOnSignal::exit_code();
        }
    });
}

}  // namespace invar::cli
