// `invar check` under mpirun: what each rank has, and one line about the first that lacks something.
#include <nlohmann/json.hpp>

#include "tests/cli/ranks.h"

namespace invar::cli {
namespace {

class Preflight : public RanksTest {
  protected:
    static std::string check(const Words& more = {}) { return "check trainer.device=cpu" + small_words(more); }
    // The line that says what is wrong, among what mpirun has to say.
    static std::string error_of(const Result& result) {
        std::istringstream in(result.err);
        std::string found;
        for (std::string line; std::getline(in, line);) {
            if (!has(line, "invar: error: ")) continue;
            EXPECT_TRUE(found.empty()) << "one line: " << result.err;
            found = line;
        }
        return found;
    }
    static std::string here() {
        char name[256] = {};
        ::gethostname(name, sizeof name - 1);
        return name;
    }
    // Four images of 2x2 in the format of MNIST, as all four files that it is made of.
    void write_mnist(const std::string& folder) const {
        const auto write = [&](const std::string& name, std::initializer_list<int> bytes) {
            std::ofstream file(folder_ / folder / name, std::ios::binary);
            for (const int byte : bytes) file.put(char(byte));
        };
        std::filesystem::create_directories(folder_ / folder);
        for (const std::string split : {"train", "t10k"}) {
            write(split + "-images-idx3-ubyte",
                  {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2});
            write(split + "-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3, 4});
        }
    }
};

TEST_F(Preflight, TellsThatAllIsWell) {
    for (const std::string kind : {"openmpi", "mpich"}) {
        if (!there(kind)) continue;
        const Result result = shell(ranks(3, check(), kind));
        EXPECT_EQ(result.code, 0) << result.err;
        EXPECT_TRUE(has(result.out, "3 ranks on 1 host can train together")) << result.out;
        EXPECT_TRUE(has(result.out, "0-2   " + here())) << "ranks that agree share a row: " << result.out;
        EXPECT_FALSE(std::filesystem::exists(folder_ / "runs")) << "nothing is left behind";
    }
    const Result json = shell(ranks(3, check({"--json"})));
    std::istringstream in(json.out);
    int rows = 0, speeds = 0;
    for (std::string text; std::getline(in, text);) {
        const auto line = nlohmann::json::parse(text);
        if (line.contains("clock_offset_s")) {
            EXPECT_EQ(line.at("rank"), rows++);
            EXPECT_EQ(line.at("host"), here());
            EXPECT_EQ(line.at("train_samples"), 160);
            EXPECT_GT(line.at("memory_needed_bytes"), 1000);
            EXPECT_GT(line.at("memory_there_bytes"), line.at("memory_needed_bytes"));
            EXPECT_LT(std::abs(line.at("clock_offset_s").get<double>()), 1);
        }
        if (line.contains("exchange_bytes") && line.at("all_gather_bytes_per_s") > 0) ++speeds;
        if (line.contains("ready")) {
            EXPECT_TRUE(line.at("ready"));
        }
    }
    EXPECT_EQ(rows, 3);
    EXPECT_EQ(speeds, 3);
}

TEST_F(Preflight, NamesTheRankWithoutItsData) {
    write_mnist("good/data");
    std::filesystem::create_directories(folder_ / "bad/data");
    const std::string words = "check data=mnist data.root=data data.batch_size=4 model=mlp trainer.device=cpu";
    const std::string there = "cd ../good;", missing = "if [ $RANK = 1 ]; then cd ../bad; else cd ../good; fi;";
    std::filesystem::create_directories(folder_ / "start");
    const Result good = shell("cd start; " + ranks(3, words, "openmpi", there));
    EXPECT_EQ(good.code, 0) << good.err << good.out;
    const Result bad = shell("cd start; " + ranks(3, words, "openmpi", missing));
    EXPECT_NE(bad.code, 0);
    EXPECT_TRUE(has(error_of(bad), "error: rank 1 on host " + here() + ": data: ")) << bad.err;
    EXPECT_TRUE(has(error_of(bad), "data")) << bad.err;
    EXPECT_TRUE(has(bad.out, "FAIL")) << bad.out;
    EXPECT_FALSE(has(bad.out, "can train together")) << bad.out;
    const Result none = shell("cd start; " + ranks(3, words, "openmpi", "cd ../bad;"));
    EXPECT_TRUE(has(none.out, "FAIL  ranks 0-2 on host " + here() + ": data: ")) << "said once: " << none.out;
    EXPECT_FALSE(has(none.out, "FAIL  rank ")) << none.out;
}

TEST_F(Preflight, NamesTheRankWithoutADisk) {
    for (const char* name : {"start", "good", "bad"}) std::filesystem::create_directories(folder_ / name);
    std::ofstream(folder_ / "bad/runs") << "a file";
    const Result result =
        shell("cd start; " + ranks(3, check(), "openmpi", "if [ $RANK = 2 ]; then cd ../bad; else cd ../good; fi;"));
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(error_of(result), "rank 2 on host " + here() + ": disk: output_dir=runs: ")) << result.err;
}

TEST_F(Preflight, NamesTheRankThatSeesAnotherFolder) {
    for (const char* name : {"start", "good", "bad"}) std::filesystem::create_directories(folder_ / name);
    const Result result =
        shell("cd start; " + ranks(3, check(), "openmpi", "if [ $RANK = 2 ]; then cd ../bad; else cd ../good; fi;"));
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(error_of(result), "rank 2 on host " + here() + ": disk: does not see in ")) << result.err;
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / "good")) << "nothing is left behind";
}

TEST_F(Preflight, NamesTheRankWhoseDiskIsFull) {
    if (shell("mkdir probe; unshare -m mount -t tmpfs -o size=64k none probe").code != 0)
        GTEST_SKIP() << "a small disk cannot be mounted here";
    std::filesystem::create_directories(folder_ / "runs");
    const std::string full =
        "if [ $RANK = 1 ]; then exec unshare -m sh -c \"mount -t tmpfs -o size=64k none runs; "
        "head -c 1000000 /dev/zero > runs/full 2>/dev/null; exec invar \\\"\\$@\\\"\" invar \"$@\"; fi;";
    const Result result = shell(ranks(2, check(), "openmpi", full));
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(error_of(result), "rank 1 on host " + here() + ": disk: output_dir=runs: nothing can be written"))
        << result.err;
    EXPECT_TRUE(has(error_of(result), "No space left on device")) << result.err;
}

TEST_F(Preflight, NamesTheRankWithOtherSettings) {
    const Result result =
        shell("timeout 60 mpirun.openmpi -n 1 invar " + check() + " : -n 1 invar " + check({"optimizer.lr=0.5"}));
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(error_of(result), "rank 1 on host " + here() + ": configuration: it differs: ")) << result.err;
    EXPECT_TRUE(has(error_of(result), "lr: 0.5")) << result.err;
    const Result one_wrong =
        shell("timeout 60 mpirun.openmpi -n 1 invar " + check() + " : -n 1 invar " + check({"optimizer.lrr=0.5"}));
    EXPECT_TRUE(has(error_of(one_wrong), "rank 1 on host " + here() + ": configuration: ")) << one_wrong.err;
    EXPECT_TRUE(has(error_of(one_wrong), "optimizer.lrr")) << one_wrong.err;
    const Result all_wrong = shell(ranks(2, check({"optimizer.lrr=0.5"})) + "; exit $?");
    EXPECT_EQ(all_wrong.code, 2) << "trouble with what was asked, as without ranks";
    EXPECT_TRUE(has(error_of(all_wrong), "optimizer.lrr")) << all_wrong.err;
}

// Where it is the first one, who speaks for all, another rank says so.
TEST_F(Preflight, NamesTheRankThatNeverCame) {
    for (const int rank : {0, 1}) {
        const Result result = shell(ranks(3, check({"trainer.rank_timeout=6"}), "openmpi",
                                          fmt::format("if [ $RANK = {} ]; then exec sleep 100; fi;", rank)));
        EXPECT_NE(result.code, 0);
        const std::string why = "the 3 ranks that mpirun started have not come together";
        EXPECT_TRUE(has(error_of(result), fmt::format("{}: rank {} has not come", why, rank))) << result.err;
    }
}

// Rank 2 comes late, so that rank 1 is stopped while all wait to be joined; then the one who was stopped is to blame.
TEST_F(Preflight, NamesTheRankThatIsStopped) {
    const std::string late = "if [ $RANK = 2 ]; then until [ -e stopped ]; do sleep 0.05; done; fi;";
    const Result result = shell(ranks(3, check({"trainer.rank_timeout=8"}), "openmpi", tell_launch() + late) +
                                until_waits(1) + " kill -STOP $(cat pid.1); touch stopped; wait $ranks");
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(error_of(result), "rank 1 ")) << result.err;
    EXPECT_TRUE(has(error_of(result), "stopped")) << result.err;
    EXPECT_TRUE(has(error_of(result), here())) << result.err;
}

// Of the first one, which would speak, another one does.
TEST_F(Preflight, NamesTheFirstRankWhereThatIsStopped) {
    const std::string late = "if [ $RANK = 2 ]; then until [ -e stopped ]; do sleep 0.05; done; fi;";
    const Result result = shell(ranks(3, check({"trainer.rank_timeout=4"}), "openmpi", tell_launch() + late) +
                                until_waits(0) + " kill -STOP $(cat pid.0); touch stopped; wait $ranks");
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(result.err, "have not come together: rank 0 on host " + here())) << result.err;
    EXPECT_TRUE(has(result.err, " is stopped")) << result.err;
}

TEST_F(Preflight, NamesTheRankThatIsStoppedLater) {
    Result result;
    result.code = 0;
    for (int attempt = 0; attempt < 5 && result.code == 0; ++attempt)  // it may have been done before it was stopped
        result = shell("rm -f launch; " + ranks(3, check({"trainer.rank_timeout=8"}), "openmpi", tell_launch()) +
                       until_waits(1) + " while waits; do sleep 0.01; done; kill -STOP $(cat pid.1); wait $ranks");
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(error_of(result), "rank 1 gives no answer")) << result.err;
    EXPECT_TRUE(has(error_of(result), "ranks 0 to 2 are on host " + here())) << result.err;
}

}  // namespace
}  // namespace invar::cli
