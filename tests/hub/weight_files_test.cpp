// Files of weights and their index: what is whole is listed, and what is not is told in one line.
#include "invar/hub/weight_files.h"

#include <gtest/gtest.h>

#include <fstream>

#include "invar/core/error.h"
#include "invar/io/temporary_folder.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Shards : public ::testing::Test {
  protected:
    Shards() {
        save_safetensors(folder_.path() / "one.safetensors", {{"a", ops::full({2}, 1)}, {"b", ops::full({3}, 2)}});
        save_safetensors(folder_.path() / "two.safetensors", {{"c", ops::full({4}, 3)}});
        map_ = {{"a", "one.safetensors"}, {"b", "one.safetensors"}, {"c", "two.safetensors"}};
    }
    void write_index(const std::string& text) { std::ofstream(folder_.path() / kIndexFile) << text; }
    void refused(const char* says) {
        write_index(Json{{"weight_map", map_}}.dump());
        EXPECT_ERROR(WeightFiles(folder_.path()), IoError, says);
    }
    fs::path operator/(const char* name) const { return folder_.path() / name; }

    const TemporaryFolder folder_;
    Json map_;
};

TEST_F(Shards, AreReadByTheirIndex) {
    write_index(Json{{"metadata", {{"total_size", 36}}}, {"weight_map", map_}}.dump());
    const WeightFiles files(folder_.path());
    std::map<std::string, double> first;
    for (const WeightFiles::Place& place : files.tensors())
        first[place.entry->name] = place.read().to_vector<double>().at(0);
    EXPECT_EQ(first, (std::map<std::string, double>{{"a", 1}, {"b", 2}, {"c", 3}}));
}

TEST_F(Shards, AreLeftAloneWhereThereIsOneFileOfAll) {
    write_index("no index at all");
    save_safetensors(*this / kWeightsFile, {{"z", ops::full({1}, 1)}});
    EXPECT_EQ(WeightFiles(folder_.path()).tensors().at(0).entry->name, "z");
}

TEST_F(Shards, ThatAreMissingOrCutShortAreToldByName) {
    map_["d"] = "three.safetensors";
    refused("three.safetensors");
    map_.erase("d");
    fs::resize_file(*this / "two.safetensors", fs::file_size(*this / "two.safetensors") - 1);
    refused("two.safetensors");
    fs::resize_file(*this / "two.safetensors", 3);
    refused("two.safetensors");
}

TEST_F(Shards, HoldEachTensorOnceAndWhereTheIndexSaysSo) {
    map_["c"] = "one.safetensors";
    refused("the tensor \"c\" is said to be in \"one.safetensors\", and is not there");
    map_["c"] = "two.safetensors";
    save_safetensors(*this / "two.safetensors", {{"a", ops::full({2}, 1)}, {"c", ops::full({4}, 3)}});
    refused(
        "two.safetensors: holds the tensor \"a\", which model.safetensors.index.json says is in \"one.safetensors\"");
    save_safetensors(*this / "two.safetensors", {{"c", ops::full({4}, 3)}, {"x", ops::full({1}, 3)}});
    refused("two.safetensors: holds the tensor \"x\", which model.safetensors.index.json says is nowhere");
    write_index(R"({"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}})");
    EXPECT_ERROR(WeightFiles(folder_.path()), IoError, "the key \"a\" is there twice");
}

TEST_F(Shards, LieBesideTheIndexAndNowhereElse) {
    const std::string absolute = (*this / "two.safetensors").string();
    for (const std::string& name :
         {std::string("../two.safetensors"), absolute, std::string(".."), std::string("."), std::string(),
          std::string("sub/two.safetensors"), std::string("two.safetensors\0x", 17)}) {
        map_["c"] = name;
        refused("the tensor \"c\" is said to be in");
    }
    map_["c"] = 3;
    refused("c = ");
}

TEST_F(Shards, MayBeLinksAsInACacheButNoLoops) {
    fs::rename(*this / "two.safetensors", *this / "blob");
    fs::create_symlink("blob", *this / "two.safetensors");
    write_index(Json{{"weight_map", map_}}.dump());
    EXPECT_EQ(WeightFiles(folder_.path()).tensors().size(), 3u);
    fs::remove(*this / "two.safetensors");
    fs::create_symlink("two.safetensors", *this / "two.safetensors");
    refused("two.safetensors");
    fs::create_symlink(kWeightsFile, *this / kWeightsFile);
    EXPECT_ERROR(WeightFiles(folder_.path()), IoError, kWeightsFile);
}

TEST_F(Shards, OfAnIndexThatIsNoneAreRefused) {
    for (const char* text :
         {"", "[]", "{}", "{\"weight_map\": 3}", "{\"weight_map\": {}}", "{\"weight_map\": {\"a\""}) {
        write_index(text);
        EXPECT_ERROR(WeightFiles(folder_.path()), IoError, kIndexFile);
    }
    fs::remove(*this / kIndexFile);
    EXPECT_ERROR(WeightFiles(folder_.path()), IoError, "name a file of weights");
    map_ = Json::object();
    for (int i = 0; i < 1000; ++i) map_[std::to_string(i)] = std::to_string(i) + ".safetensors";
    refused("names 1000 files");
}

}  // namespace
}  // namespace invar
