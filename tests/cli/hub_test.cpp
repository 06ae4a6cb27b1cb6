// Folders of Hugging Face's at the terminal: a run exported, begun from, sampled from; and folders that are damaged.
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

namespace fs = std::filesystem;

class Hub : public CliTest {
  protected:
    // A small run on a text of one sentence, exported to `model`.
    void export_run(const Words& more = {}, const Words& flags = {}) {
        Result result = train_gpt(more);
        ASSERT_EQ(result.code, 0) << result.err;
        Words words = {"export", "runs/cats", "model"};
        words.insert(words.end(), flags.begin(), flags.end());
        result = invar(words);
        ASSERT_EQ(result.code, 0) << result.err;
        exported_ = result.out;
    }
    Words from_folder(const Words& more = {}, const Words& before = {"train"}) const {
        Words words = before;
        for (const char* word : {"init_from=model", "data=text", "data.path=text.txt", "data.length=16",
                                 "data.batch_size=8", "trainer.max_steps=1", "trainer.threads=1", "trainer.device=cpu"})
            words.emplace_back(word);
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    void refuses(const Words& words, std::initializer_list<const char*> says) const {
        const Result result = invar(words);
        EXPECT_EQ(result.code, 2) << result.out;
        const std::string error = result.error();
        for (const char* part : says) EXPECT_TRUE(has(error, part)) << error;
    }
    void write(const fs::path& name, const std::string& text) const {
        std::ofstream(folder_ / name, std::ios::binary) << text;
    }
    std::string exported_;  // what that said
    nlohmann::json config() const { return nlohmann::json::parse(slurp(folder_ / "model/config.json")); }
};

TEST_F(Hub, ARunIsExportedAndSampledFromItsFolder) {
    export_run();
    EXPECT_TRUE(has(exported_, "\nno tokenizer was written: a token is a byte")) << exported_;
    const Result folder = invar({"sample", "model", "the cat", "--tokens", "16", "--temperature", "0"});
    ASSERT_EQ(folder.code, 0) << folder.err;
    EXPECT_EQ(folder.out, "the cat sat on the mat.\n");
    EXPECT_EQ(config().at("model_type"), "gpt2");
    EXPECT_EQ(config().at("n_positions"), 32);
    EXPECT_EQ(config().at("vocab_size"), 257);  // the bytes, and the end of a text
    EXPECT_EQ(config().at("eos_token_id"), 256);
    // The weights are those of the run to the bit: they evaluate to the same figures.
    const Result run = invar({"eval", "runs/cats", "--json"});
    const Result file = invar({"eval", "model/model.safetensors", "gpt", "data.path=text.txt", "data.length=32",
                               "model.layers=1", "model.heads=2", "model.width=32", "data.batch_size=8",
                               "trainer.threads=1", "trainer.device=cpu", "--json"});
    ASSERT_EQ(file.code, 0) << file.err;
    const auto loss = [](const Result& result) { return nlohmann::json::parse(result.out).at("val_loss"); };
    EXPECT_EQ(loss(run), loss(file));
}

TEST_F(Hub, ARunBegunFromAFolderHasItsModelAndIsResumedWithoutIt) {
    export_run({"trainer.max_steps=1"});
    ASSERT_EQ(invar(from_folder({"exp_name=tuned", "model.dropout=0.2", "trainer.max_steps=2"})).code, 0);
    const std::string yaml = slurp(folder_ / "runs/tuned/config.yaml");
    for (const char* line : {"name: gpt", "name: language", "layers: 1", "heads: 2", "width: 32", "vocabulary: 257",
                             "length: 32", "dropout: 0.2", "init_from: model"})
        EXPECT_TRUE(has(yaml, line)) << yaml;
    fs::remove_all(folder_ / "model");
    const Result resumed = invar({"train", "--resume", "runs/tuned", "trainer.max_steps=3"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_TRUE(has(resumed.out, "finished")) << resumed.out;
    EXPECT_EQ(invar({"sample", "runs/tuned", "the", "--tokens", "2"}).code, 0);
    refuses(from_folder({"exp_name=again"}), {"model"});
}

TEST_F(Hub, ARunThatWasKilledBeforeItsFirstCheckpointBeginsFromTheFolderAgain) {
    export_run();
    ASSERT_EQ(invar(from_folder({"exp_name=tuned"})).code, 0);
    const auto loss = [&] {
        const Result eval = invar({"eval", "runs/tuned", "--json"});
        return eval.code == 0 ? nlohmann::json::parse(eval.out).at("val_loss").get<double>() : -1;
    };
    const double first = loss();
    fs::remove_all(folder_ / "runs/tuned/checkpoints");
    const Result resumed = invar({"train", "--resume", "runs/tuned"});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_TRUE(has(resumed.out + resumed.err, "starting from the beginning")) << resumed.out;
    EXPECT_GT(first, 0);
    EXPECT_EQ(loss(), first);
}

TEST_F(Hub, TheFolderDecidesOverFilesAndTheCommandLineMayNotContradictIt) {
    export_run({"trainer.max_steps=1"});
    const Result taken =
        invar({"train", "gpt", "init_from=model", "data.path=text.txt", "data.length=16", "--print-config"});
    ASSERT_EQ(taken.code, 0) << taken.err;
    EXPECT_TRUE(has(taken.out, "layers: 1")) << taken.out;
    EXPECT_EQ(invar(from_folder({"model.layers=1", "model=gpt", "--print-config"})).code, 0);
    refuses(from_folder({"model.layers=3"}),
            {"model.layers = 3 (command line)", "init_from=model", "weights of a model of 1"});
    refuses(from_folder({"model=llama"}), {"model.name = llama (command line)", "init_from=model", "the model gpt"});
    refuses(from_folder({"model=mlp"}), {"model.name = mlp", "the model gpt"});
    refuses(from_folder({"model.length=16"}), {"model.length = 16", "of 32"});
    refuses(from_folder({"model.n_layer=3"}), {"model.layers = 3", "of 1"});
    EXPECT_FALSE(fs::exists(folder_ / "runs/run"));
}

TEST_F(Hub, ALlamaGoesThroughAFolderToo) {
    export_run({"model=llama", "model.rope_scaling=llama3", "model.rope_factor=4", "model.rope_original_length=16",
                "trainer.max_steps=2", "model.kv_heads=1"},
               {"--dtype", "bf16", "--max-shard-size", "20KB"});
    EXPECT_EQ(config().at("rope_scaling").at("factor"), 4.0);
    EXPECT_EQ(config().at("torch_dtype"), "bfloat16");
    EXPECT_TRUE(fs::exists(folder_ / "model/model.safetensors.index.json"));
    const Result shorter = invar(from_folder({"model.length=16", "exp_name=tuned"}));
    EXPECT_EQ(shorter.code, 0) << shorter.err;
    EXPECT_TRUE(has(slurp(folder_ / "runs/tuned/config.yaml"), "rope_scaling: llama3"));
    refuses(from_folder({"model.length=64"}), {"model.length = 64", "from 1 to 32"});
}

// What a reader of somebody else's makes of an exported folder: a model in numpy, written without a look at ours.
TEST_F(Hub, AModelWrittenInNumpyReadsTheFolderAsWeDo) {
    std::string python;
    for (const char* program : {"python3", "/usr/bin/python3"})
        if (python.empty() && shell(std::string(program) + " -c 'import numpy'").code == 0) python = program;
    if (python.empty()) GTEST_SKIP() << "needs python3 with numpy";
    const std::vector<Words> models = {
        {"model=gpt", "model.layers=2"},
        {"model=llama", "model.kv_heads=1", "model.attention_bias=true", "model.layers=2"},
        {"model=llama", "model.tied=false", "model.rope_scaling=linear", "model.rope_factor=3"},
        {"model=llama", "model.rope_scaling=llama3", "model.rope_factor=4", "model.rope_original_length=16",
         "model.rope_theta=100"}};
    for (const Words& model : models) {
        fs::remove_all(folder_ / "runs");
        fs::remove_all(folder_ / "model");
        Words words = model;
        words.insert(words.end(), {"trainer.max_steps=12"});
        export_run(words, {"--max-shard-size", "30KB"});
        const Result ours = invar({"sample", "model", "the cat sat", "--tokens", "12", "--temperature", "0", "--json"});
        ASSERT_EQ(ours.code, 0) << ours.err;
        const Result theirs = shell(python + " " INVAR_SOURCE_DIR "/tests/hub/greedy.py model 'the cat sat' 12");
        ASSERT_EQ(theirs.code, 0) << theirs.err;
        std::string text;
        for (const int byte : nlohmann::json::parse(theirs.out)) text += char(byte);
        EXPECT_EQ(nlohmann::json::parse(ours.out).at("text"), text) << theirs.out;
    }
}

TEST_F(Hub, ATokenizerGoesWithTheModel) {
    write("corpus.txt", "low lower lowest new newer newest low low low new new");
    ASSERT_EQ(invar({"tokenize", "corpus.txt", "--train", "300", "-o", "words.bin", "--save", "words.json"}).code, 0)
        << slurp(folder_ / ".err");
    export_run({"data.tokenizer=words.json", "trainer.max_steps=1"});
    EXPECT_TRUE(has(exported_, "with its tokenizer") && !has(exported_, "no tokenizer")) << exported_;
    EXPECT_EQ(slurp(folder_ / "model/tokenizer.json"), slurp(folder_ / "words.json"));
    const auto read_as = nlohmann::json::parse(slurp(folder_ / "model/tokenizer_config.json"));
    EXPECT_EQ(read_as.at("tokenizer_class"), "PreTrainedTokenizerFast");  // as the file says, whatever the model
    EXPECT_EQ(read_as.at("eos_token"), "<|endoftext|>");
    EXPECT_EQ(invar({"export", "runs/cats", "model", "--force"}).code, 0) << slurp(folder_ / ".err");
    const Result taken = invar(from_folder({"--print-config"}));
    EXPECT_TRUE(has(taken.out, "tokenizer: model/tokenizer.json")) << taken.out << taken.err;
    const Result other = invar(from_folder({"data.tokenizer=bytes", "--print-config"}));
    EXPECT_TRUE(has(other.out, "tokenizer: bytes")) << other.out << other.err;
    EXPECT_EQ(invar({"sample", "model", "low", "--tokens", "3"}).code, 0);
}

TEST_F(Hub, WhatCannotBeExportedIsRefusedInOneLine) {
    ASSERT_EQ(invar(small({"trainer.max_steps=1"})).code, 0);
    refuses({"export", "runs/run", "out"}, {"model mlp", "gpt and llama can be exported"});
    refuses({"export", "runs/run"}, {"say which run, and the folder to write"});
    refuses({"export", "none", "out"}, {"none: not the folder of a run"});
    refuses({"export", "runs/run", "out", "--dtype", "int8"}, {"--dtype"});
    refuses({"export", "runs/run", "out", "--max-shard-size", "some"}, {"'some' is no size"});
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    export_run({"trainer.max_steps=1"});
    refuses({"export", "runs/cats", "model"}, {"model: is there already, and not empty"});
    EXPECT_EQ(invar({"export", "runs/cats", "model", "--force"}).code, 0);
    refuses({"export", "runs/cats", "runs", "--force"}, {"runs: holds cats"});
    EXPECT_TRUE(fs::exists(folder_ / "runs/cats/config.yaml"));
}

TEST_F(Hub, ADiskThatIsFullLeavesNothingThatLooksWhole) {
    export_run({"trainer.max_steps=1"});
    const std::string before = slurp(folder_ / "model/model.safetensors");
    for (const char* words : {"runs/cats fresh", "runs/cats model --force"}) {
        const Result full = shell("ulimit -f 16; invar export " + std::string(words));
        EXPECT_EQ(full.code, 2) << full.err;
        EXPECT_TRUE(has(full.err, "error: cannot write") && has(full.err, "model.safetensors")) << full.err;
    }
    EXPECT_FALSE(fs::exists(folder_ / "fresh"));
    EXPECT_EQ(slurp(folder_ / "model/model.safetensors"), before);
    for (const auto& entry : fs::directory_iterator(folder_))
        EXPECT_FALSE(has(entry.path().string(), "incomplete")) << entry.path();
}

TEST_F(Hub, ASignalLeavesNothingOfAnExport) {
    ASSERT_EQ(train_gpt({"trainer.max_steps=1", "model.width=256", "model.layers=4"}).code, 0);
    // One that comes too late finds the folder whole; then it is tried again.
    const Result result = shell(
        "for n in 1 2 3 4 5 6 7 8 9 10; do rm -rf out; invar export runs/cats out --max-shard-size 200KB & "
        "until compgen -G 'out.incomplete-*' >/dev/null || ! kill -0 $! 2>/dev/null; do :; done; kill -TERM $!; "
        "wait $!; code=$?; [ $code = 0 ] || break; done; exit $code");
    EXPECT_EQ(result.code, 143) << result.err;
    EXPECT_TRUE(has(result.err, "interrupted by SIGTERM; nothing was written")) << result.err;
    for (const auto& entry : fs::directory_iterator(folder_))
        EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path();
}

TEST_F(Hub, DamagedFoldersAreRefusedInOneLine) {
    export_run({"trainer.max_steps=1"});
    const std::string good = slurp(folder_ / "model/config.json");
    const auto with = [&](const char* key, const nlohmann::json& value) {
        nlohmann::json json = nlohmann::json::parse(good);
        json[key] = value;
        return json.dump();
    };
    const std::vector<std::pair<std::string, const char*>> damaged = {
        {"", "is not JSON"},
        {"{", "is not JSON"},
        {std::string(100000, '['), "nested deeper"},
        {with("n_layer", 1'000'000'000), "tells of a model of"},
        {with("n_layer", 1001), "tells of a model of"},
        {with("n_layer", -1), "n_layer = -1"},
        {with("n_head", "many"), "n_head = \"many\""},
        {with("n_head", 3), "model.width = 32"},
        {with("vocab_size", 9e300), "vocab_size"},
        {with("n_embd", 36), "c_attn.weight is [32, 96] and should be [36, 108]"},
        {with("model_type", "bert"), "model_type = \"bert\""},
        {with("model_type", "a\x1b[31m\nb"), "model_type"},
    };
    for (const auto& [text, says] : damaged) {
        write("model/config.json", text);
        const Result trained = invar(from_folder());
        EXPECT_EQ(trained.code, 2) << says;
        EXPECT_TRUE(has(trained.error(), says)) << trained.err;
        EXPECT_FALSE(has(trained.err, "\x1b[31m")) << trained.err;
        EXPECT_EQ(invar({"sample", "model", "the"}).code, 2) << says;
    }
    write("model/config.json", good);
    const std::string weights = slurp(folder_ / "model/model.safetensors");
    write("model/model.safetensors", weights.substr(0, weights.size() - 5));
    refuses(from_folder(), {"model.safetensors"});
    std::string wrong = weights;
    wrong.back() ^= 1;
    write("model/model.safetensors", wrong);
    refuses(from_folder(), {"model.safetensors", "checksum"});
    fs::remove(folder_ / "model/model.safetensors");
    refuses(from_folder(), {"model: is a folder without model.safetensors"});
    fs::remove(folder_ / "model/config.json");
    refuses(from_folder(), {"model: is a folder without config.json"});
    EXPECT_FALSE(fs::exists(folder_ / "runs/run"));
}

}  // namespace
}  // namespace invar::cli
