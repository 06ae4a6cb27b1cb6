// Files that are not what they should be: pipes, sockets, devices and folders are refused at once, and whatever a file
// holds, it is told in words of our own and steers no terminal.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class SpecialFiles : public CliTest {
  protected:
    // Every command that opens this file says so in one line, without waiting for anybody.
    void refuses(const std::string& command, int code, const Words& parts) {
        const Result result = shell("timeout -s KILL 60 invar " + command + " </dev/null");
        EXPECT_EQ(result.code, code) << command << ": " << result.err;
        const std::string message = result.error();
        for (const std::string& part : parts)
            EXPECT_TRUE(has(message, part)) << command << ": '" << part << "' is missing in: " << message;
    }
    void make_pipe(const std::string& name) const { ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0); }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(folder_ / name, std::ios::binary) << text;
    }
    void make_run() const { ASSERT_EQ(invar(small()).code, 0); }
    // A safetensors file whose header says what it likes, its data a hole as large as it likes.
    void write_safetensors(const std::string& name, const std::string& header, std::uint64_t data) const {
        std::string head(8, '\0');
        for (std::size_t i = 0; i < 8; ++i) head[i] = char(header.size() >> (8 * i));
        write(name, head + header);
        std::filesystem::resize_file(folder_ / name, head.size() + header.size() + data);
    }
};

TEST_F(SpecialFiles, APipeIsRefusedWhereverAFileIsExpected) {
    make_pipe("pipe");
    const std::string a_pipe = "it is a pipe";
    refuses("train ./pipe", 2, {"./pipe", a_pipe});
    refuses("train" + small_words({"init_from=pipe"}), 2, {"pipe", a_pipe});
    refuses("eval pipe" + small_words(), 2, {"pipe", a_pipe});
    refuses("inspect pipe", 2, {"pipe", a_pipe});
    refuses("compare pipe pipe", 2, {"pipe", a_pipe});
    make_run();
    for (const char* name : {".lock", "metrics.jsonl"}) {
        const std::string path = std::string("runs/run/") + name;
        std::filesystem::remove(folder_ / path);
        make_pipe(path);
        refuses("train --resume runs/run trainer.max_epochs=2", 2, {path, a_pipe});
        std::filesystem::remove(folder_ / path);
    }
    const std::string config = slurp(folder_ / "runs/run/config.yaml");
    std::filesystem::remove(folder_ / "runs/run/config.yaml");
    make_pipe("runs/run/config.yaml");
    const Result resumed = shell("timeout -s KILL 60 invar train --resume runs/run trainer.max_epochs=2");
    EXPECT_EQ(resumed.code, 2) << resumed.err;
    EXPECT_TRUE(has(resumed.err, "note: runs/run/config.yaml is not an ordinary file; taking") &&
                has(resumed.err, "error: cannot write runs/run/config.yaml"))
        << resumed.err;
    std::filesystem::remove(folder_ / "runs/run/config.yaml");
    write("runs/run/config.yaml", config);
    const std::string checkpoint = "runs/run/checkpoints/step_00000099.safetensors";
    make_pipe(checkpoint);
    const Result eval = shell("timeout -s KILL 60 invar eval runs/run");
    EXPECT_EQ(eval.code, 0) << eval.err;
    EXPECT_TRUE(has(eval.err, "step_00000099.safetensors: " + a_pipe)) << eval.err;
}

TEST_F(SpecialFiles, SoAreDevicesSocketsAndFolders) {
    refuses("inspect /dev/zero", 2, {"/dev/zero", "it is a device"});
    refuses("compare /dev/zero /dev/zero", 2, {"/dev/zero", "it is a device"});
    refuses("train /dev/zero", 2, {"/dev/zero", "it is a device"});
    std::filesystem::create_directory(folder_ / "folder");
    refuses("inspect folder", 2, {"folder", "name a file"});
    refuses("train ./folder", 2, {"./folder", "name a file"});
    refuses("train" + small_words({"init_from=folder"}), 2, {"folder", "name a file"});
    const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (folder_ / "socket").string();
    ASSERT_LT(path.size(), sizeof address.sun_path);
    path.copy(address.sun_path, path.size());
    ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    refuses("inspect socket", 2, {"socket", "name an ordinary file"});
    ::close(listener);
}

TEST_F(SpecialFiles, APipeOfTheShellMayHoldLogsAndConfigurations) {
    write("a.csv", "step,val_loss\n1,0.50\n2,0.41\n");
    write("b.csv", "step,val_loss\n1,0.51\n2,0.41\n");
    const Result piped = shell("invar compare <(cat a.csv) <(cat b.csv) --metric val_loss");
    const Result plain = shell("invar compare a.csv b.csv --metric val_loss");
    EXPECT_EQ(piped.code, plain.code) << piped.err;
    EXPECT_TRUE(has(piped.out, "val_loss")) << piped.out << piped.err;
    const Result config = shell("invar train <(echo 'exp_name: piped') --print-config");
    EXPECT_TRUE(has(config.out, "exp_name: piped")) << config.err;
    const Result weights = shell("invar inspect <(cat a.csv)");
    EXPECT_TRUE(has(weights.error(), "it is a pipe")) << weights.err;
    // One that never says anything can be left.
    EXPECT_EQ(shell("timeout -s TERM 1 invar compare <(sleep 5) a.csv").code, 124);
}

TEST_F(SpecialFiles, MetricsThatAreNotNumbersAreToldByFileLineAndKey) {
    make_run();
    std::ofstream(folder_ / "runs/run/metrics.jsonl", std::ios::app) << "{\"step\":\"x\"}\n";
    refuses("train --resume runs/run trainer.max_epochs=2", 2,
            {"metrics.jsonl:12", "\"step\" is \"x\"", "expected a whole number"});
    write("bad.jsonl", "{\"step\":1,\"val_loss\":0.5}\n{\"step\":2,\"val_loss\":\"high\"}\n");
    write("good.jsonl", "{\"step\":1,\"val_loss\":0.5}\n{\"step\":2,\"val_loss\":0.4}\n");
    refuses("compare bad.jsonl good.jsonl --metric val_loss", 2, {"bad.jsonl line 2", "val_loss", "not a number"});
}

TEST_F(SpecialFiles, BrokenYamlIsToldByPlaceAndWhatWasExpected) {
    write("bracket.yaml", "exp_name: x\nmodel:\n  hidden: [8, 8\n");
    write("colon.yaml", "exp_name: a: b\n");
    write("tab.yaml", "trainer:\n\tmax_epochs: 2\n");
    write("quote.yaml", "exp_name: \"x\n");
    refuses("train bracket.yaml", 2, {"bracket.yaml:", "expected a closing ]"});
    refuses("train colon.yaml", 2, {"colon.yaml:1:12", "expected one `key: value` a line", "found ': b'"});
    refuses("train tab.yaml", 2, {"tab.yaml:2", "expected"});
    refuses("train quote.yaml", 2, {"quote.yaml:", "expected a closing quote"});
    for (const char* file : {"bracket.yaml", "colon.yaml", "tab.yaml", "quote.yaml"})
        EXPECT_FALSE(has(invar({"train", file}).err, "illegal")) << "the parser's own words";
}

TEST_F(SpecialFiles, WhatSteersATerminalIsShownInstead) {
    const std::string name = "w\\u001b[31m\\u202e\\u0007\\n\\u009b", shown = "w\\u001b[31m\\u202e\\u0007\\n\\u009b";
    write_safetensors("w.safetensors", "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                      8);
    const std::string log =
        "{\"step\":1,\"val_\\u001b[2J\\u202eloss\":0.5}\n{\"step\":2,\"val_\\u001b[2J\\u202eloss\":0.4}\n";
    write("log.jsonl", log);
    write("other.jsonl", log + "{\"step\":2,\"other\":0.4}\n");
    const auto steers = [](const std::string& text) {
        return has(text, "\x1b") || has(text, "\x07") || has(text, "\u202e") || has(text, "\u009b");
    };
    for (const Words& words :
         {Words{"inspect", "w.safetensors"}, Words{"inspect", "w.safetensors", "--json"},
          Words{"eval", "w.safetensors", "synthetic"}, Words{"train", "synthetic", "init_from=w.safetensors"},
          Words{"train", "x\x1b[31m\u202e.yaml"}, Words{"train", "exp_name=\x1b[2J", "synthetic"},
          Words{"compare", "log.jsonl", "other.jsonl", "--metric", "val_\\u001b[2J\\u202eloss", "--better", "lower",
                "--report", "report"}}) {
        const Result result = invar(words);
        EXPECT_FALSE(steers(result.out + result.err)) << result.out << result.err;
    }
    EXPECT_TRUE(has(invar({"inspect", "w.safetensors"}).out, shown)) << invar({"inspect", "w.safetensors"}).out;
    const std::string json = invar({"inspect", "w.safetensors", "--json"}).out;
    const auto tensor = nlohmann::json::parse(json.substr(0, json.find('\n')), nullptr, false);
    EXPECT_EQ(tensor.at("tensor"), "w\x1b[31m\u202e\x07\n\u009b") << "programs get the name itself";
    if (lends_terminals()) {
        const Result result = on_terminal({"inspect", "w.safetensors"});
        EXPECT_FALSE(has(result.out, "\x1b[31m") || has(result.out, "\u202e")) << result.out;
        EXPECT_TRUE(has(result.out, "\x1b[1m")) << "our own colours are there: " << result.out;
    }
    for (const char* file : {"report/report.md", "report/report.html"})
        EXPECT_TRUE(has(slurp(folder_ / file), "val_\\u001b[2J\\u202eloss") && !steers(slurp(folder_ / file))) << file;
}

TEST_F(SpecialFiles, WeightsThatAreTooLargeAreHeldAgainstTheModelFirst) {
    constexpr std::uint64_t kTerabyte = std::uint64_t(1) << 40;
    const std::string size = std::to_string(kTerabyte), count = std::to_string(kTerabyte / 4);
    const auto entry = [&](const std::string& name) {
        return "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" + count + "],\"data_offsets\":[0," + size + "]}}";
    };
    write_safetensors("other.safetensors", entry("huge"), kTerabyte);
    write_safetensors("shape.safetensors", entry("1.weight"), kTerabyte);
    write_safetensors("claims.safetensors", entry("huge"), 16);
    refuses("train" + small_words({"init_from=other.safetensors"}), 2,
            {"init_from=other.safetensors", "another model", "unexpected \"huge\"", size + " bytes"});
    refuses("train" + small_words({"init_from=shape.safetensors"}), 2,
            {"shape.safetensors", "1.weight is [" + count + "] and should be"});
    refuses("train" + small_words({"init_from=claims.safetensors"}), 2, {"claims.safetensors", "16 data bytes"});
    refuses("eval other.safetensors" + small_words(), 2, {"other.safetensors", "another model"});
    EXPECT_FALSE(has(invar(small({"init_from=other.safetensors"})).err, "batch"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

}  // namespace
}  // namespace invar::cli
