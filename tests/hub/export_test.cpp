// Models exported, and read back to the bit: through files of any layout that the field has.
#include "invar/hub/export.h"

#include <gtest/gtest.h>

#include <fstream>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/hub/folder.h"
#include "invar/hub/weight_files.h"
#include "invar/io/file.h"
#include "invar/io/temporary_folder.h"
#include "invar/models/gpt.h"
#include "invar/models/llama.h"
#include "invar/models/registry.h"
#include "invar/ops/ops.h"
#include "invar/train/weights.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

const DataInfo kData{{8}, 40};

Part small_gpt() {
    return Part("model", "gpt").choose("gpt", GptOptions{.layers = 2, .heads = 2, .width = 16, .dropout = 0.1});
}
Part small_llama(bool tied, bool bias, const std::string& scaling = "none") {
    return Part("model", "llama")
        .choose("llama", LlamaOptions{.layers = 2,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .width = 16,
                                      .tied = tied,
                                      .attention_bias = bias,
                                      .rope_scaling = scaling,
                                      .rope_factor = 4,
                                      .rope_original_length = 32});
}

std::vector<float> logits_of(Module& model) {
    const NoGrad no_grad;
    model.eval();
    return model(Tensor::from(std::vector<std::int64_t>{3, 1, 4, 1, 5, 9, 2, 6}, {1, 8})).to_vector<float>();
}

// The model that a folder tells of, with its weights.
std::unique_ptr<Module> read_back(const fs::path& folder) {
    Part model("model", "gpt");
    for (const FolderKey& key : keys_of_folder(folder)) {
        if (key.key == "model.name") model.choose(key.value);
        if (key.key.starts_with("model.") && key.key != "model.name") model.set(key.key.substr(6), key.value);
    }
    std::unique_ptr<Module> made = make_model(model, kData);
    load_weights(*made, folder);
    return made;
}

class Export : public ::testing::Test {
  protected:
    void write(const Part& part, Module& model, const ExportOptions& options = {}) {
        export_model(folder_, part, 8, model.state_dict(), options);
    }
    const TemporaryFolder scratch_;
    const fs::path folder_ = scratch_.path() / "model";
};

TEST_F(Export, GivesTheSameLogitsWhenReadBack) {
    for (const Part& part : {small_gpt(), small_llama(true, true), small_llama(false, false),
                             small_llama(false, true, "linear"), small_llama(true, false, "llama3")}) {
        const std::unique_ptr<Module> model = make_model(part, kData);
        write(part, *model, {.force = true});
        EXPECT_EQ(logits_of(*read_back(folder_)), logits_of(*model)) << part.name();
        for (const char* other : {"none", "linear", "llama3"})  // and it would show if positions were read otherwise
            if (part.name() == "llama" && other != part.as<LlamaOptions>().rope_scaling) {
                Part changed = part;
                changed.set("rope_scaling", other);
                const std::unique_ptr<Module> turned = make_model(changed, kData);
                turned->load_state_dict(model->state_dict());
                EXPECT_NE(logits_of(*turned), logits_of(*model)) << other;
            }
    }
}

TEST_F(Export, HasTheNamesAndShapesOfHuggingFacesFiles) {
    write(small_gpt(), *make_model(small_gpt(), kData));
    std::map<std::string, std::string> shapes;
    const SafetensorsFile file(folder_ / "model.safetensors");
    for (const TensorEntry& entry : file.entries()) shapes[entry.name] = entry.shape.str();
    EXPECT_EQ(shapes.size(), 2 + 2 * 12 + 2u);
    EXPECT_EQ(shapes["transformer.wte.weight"], "[40, 16]");
    EXPECT_EQ(shapes["transformer.wpe.weight"], "[8, 16]");
    EXPECT_EQ(shapes["transformer.h.1.attn.c_attn.weight"], "[16, 48]");
    EXPECT_EQ(shapes["transformer.h.1.mlp.c_fc.weight"], "[16, 64]");
    EXPECT_EQ(shapes["transformer.h.1.mlp.c_proj.weight"], "[64, 16]");
    EXPECT_EQ(shapes["transformer.ln_f.bias"], "[16]");
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_FALSE(fs::exists(folder_ / "tokenizer.json"));
}

TEST_F(Export, SplitsIntoShardsThatReadBackToTheSameBits) {
    const Part part = small_llama(true, true);
    const std::unique_ptr<Module> model = make_model(part, kData);
    const ExportedFolder one = export_model(folder_, part, 8, model->state_dict(), {});
    const ExportedFolder many =
        export_model(folder_, part, 8, model->state_dict(), {.max_shard_bytes = 4096, .force = true});
    EXPECT_EQ(one.bytes, many.bytes);
    EXPECT_GT(many.files, 2u);
    EXPECT_FALSE(fs::exists(folder_ / kWeightsFile)) << "the folder before is gone";
    const auto index = nlohmann::json::parse(read_file(folder_ / kIndexFile));
    EXPECT_EQ(index.at("metadata").at("total_size"), many.bytes);
    EXPECT_EQ(index.at("weight_map").at("model.embed_tokens.weight"),
              fmt::format("model-00001-of-{:05}.safetensors", many.files));
    for (const auto& entry : fs::directory_iterator(folder_))
        EXPECT_LT(entry.file_size(), 4096 + 2048u) << entry.path();
    EXPECT_EQ(logits_of(*read_back(folder_)), logits_of(*model));
}

TEST_F(Export, RoundsTo16BitsAndRefusesWhatF16HasNoRoomFor) {
    const std::unique_ptr<Module> model = make_model(small_gpt(), kData);
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
        write(small_gpt(), *model, {.dtype = dtype, .force = true});
        const StateDict ours = model->state_dict(), theirs = read_back(folder_)->state_dict();
        for (const auto& [name, weight] : ours)
            EXPECT_EQ(theirs.at(name).to_vector<float>(), ops::cast(weight, dtype).to_vector<float>()) << name;
    }
    StateDict large = model->state_dict();
    large["ln_f.bias"] = ops::full({16}, 70000);
    EXPECT_ERROR(export_model(folder_, small_gpt(), 8, large, {.dtype = Dtype::f16, .force = true}), UsageError,
                 "transformer.ln_f.bias holds a value that f16 has no room for");
    EXPECT_EQ(logits_of(*read_back(folder_)).size(), 8 * 40u) << "what was there is whole";
    std::size_t entries = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(scratch_.path())) ++entries;
    EXPECT_EQ(entries, 1u) << "and nothing lies beside it";
}

TEST_F(Export, ReplacesNothingButAnExportedModelAndOnlyWhenTold) {
    const std::unique_ptr<Module> model = make_model(small_gpt(), kData);
    fs::create_directory(folder_);
    write(small_gpt(), *model);  // an empty one is no loss
    EXPECT_ERROR(write(small_gpt(), *model), UsageError, "is there already, and not empty");
    write(small_gpt(), *model, {.force = true});
    std::ofstream(folder_ / "thesis.tex") << "years of work";
    EXPECT_ERROR(write(small_gpt(), *model, {.force = true}), UsageError, "holds thesis.tex, which is no part");
    EXPECT_TRUE(fs::exists(folder_ / "thesis.tex"));
    const fs::path file = scratch_.path() / "file";
    std::ofstream(file) << "x";
    EXPECT_ERROR(export_model(file, small_gpt(), 8, model->state_dict(), {.force = true}), UsageError, "is no folder");
}

TEST_F(Export, RemovesWhatAKilledOneLeft) {
    const fs::path left = scratch_.path() / "model.incomplete-AbCdEf";
    fs::create_directory(left);
    std::ofstream(left / "model.safetensors") << "half";
    write(small_gpt(), *make_model(small_gpt(), kData));
    EXPECT_FALSE(fs::exists(left));
}

// Files of GPT-2 are about with and without the prefix, with masks, and with the head as a tensor of its own.
TEST_F(Export, ReadsTheOtherNamesOfGpt2) {
    const std::unique_ptr<Module> model = make_model(small_gpt(), kData);
    write(small_gpt(), *model);
    const auto rewrite = [&](const auto& change) {
        TensorMap tensors = model->state_dict();
        change(tensors);
        save_safetensors(folder_ / kWeightsFile, tensors);
    };
    rewrite([](TensorMap& t) {
        t["h.0.attn.bias"] = ops::ones({1, 1, 8, 8});
        t["h.1.attn.masked_bias"] = Tensor::scalar(-1e4);
        t["lm_head.weight"] = t["wte.weight"];
    });
    EXPECT_EQ(logits_of(*read_back(folder_)), logits_of(*model));
    rewrite([](TensorMap& t) { t["lm_head.weight"] = ops::zeros({40, 16}); });
    EXPECT_ERROR(read_back(folder_), Error, "\"lm_head.weight\" and \"wte.weight\" differ");
    rewrite([](TensorMap& t) { t.erase("h.1.ln_1.weight"), t["h.2.ln_1.weight"] = ops::ones({16}); });
    EXPECT_ERROR(read_back(folder_), Error, "missing h.1.ln_1.weight; unexpected \"h.2.ln_1.weight\" of shape [16]");
}

TEST_F(Export, ReadsTheOtherNamesOfLlama) {
    const Part part = small_llama(true, false);
    const std::unique_ptr<Module> model = make_model(part, kData);
    write(part, *model);
    TensorMap bare;
    for (const auto& [name, tensor] : model->state_dict()) bare[name.substr(6)] = tensor;
    bare["layers.0.self_attn.rotary_emb.inv_freq"] = ops::ones({2});
    bare["lm_head.weight"] = bare["embed_tokens.weight"];
    save_safetensors(folder_ / kWeightsFile, bare);
    EXPECT_EQ(logits_of(*read_back(folder_)), logits_of(*model));
}

TEST_F(Export, IsNotMadeRoomForWhereConfigJsonTellsOfAnotherSize) {
    write(small_gpt(), *make_model(small_gpt(), kData));
    auto config = nlohmann::json::parse(read_file(folder_ / "config.json"));
    config["vocab_size"] = 1'000'000'000'000;
    std::ofstream(folder_ / "config.json") << config;
    EXPECT_ERROR(keys_of_folder(folder_), IoError,
                 "tells of a model of 1.6e+13 parameters, and the files beside it hold");
    config["vocab_size"] = 41;
    std::ofstream(folder_ / "config.json") << config;
    EXPECT_ERROR(read_back(folder_), Error, "transformer.wte.weight is [40, 16] and should be [41, 16]");
}

TEST(ParseBytes, ReadsSizesAsHuggingFacesLibraryDoes) {
    EXPECT_EQ(parse_bytes("5GB"), 5'000'000'000u);
    EXPECT_EQ(parse_bytes("300MB"), 300'000'000u);
    EXPECT_EQ(parse_bytes("1.5kb"), 1500u);
    EXPECT_EQ(parse_bytes("2GiB"), std::uint64_t(2) << 30);
    EXPECT_EQ(parse_bytes("4096"), 4096u);
    for (const char* bad : {"", "GB", "-1GB", "1..5GB", "5 GB", "0", "1e9", "99999999TB", "5G B", "."})
        EXPECT_ERROR(parse_bytes(bad), UsageError, "is no size of a file");
}

}  // namespace
}  // namespace invar
