// Runs that other programs logged: TensorBoard's, W&B's and MLflow's, found where they lie and read as they mean it.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>

#include "invar/core/error.h"
#include "invar/io/events.h"
#include "invar/io/file.h"
#include "invar/validate/event_runs.h"
#include "invar/validate/mlflow_runs.h"
#include "invar/validate/wandb_chart.h"
#include "invar/validate/wandb_runs.h"
#include "tests/core/expect_error.h"
#include "tests/io/proto_bytes.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<double>;
using Names = std::vector<std::string>;

void put_in(const fs::path& file, std::string_view text) {
    fs::create_directories(file.parent_path());
    put(file, text);
}

Names names_of(const std::vector<fs::path>& runs, const fs::path& below) {
    Names names;
    for (const fs::path& run : runs) names.push_back(run.lexically_relative(below).string());
    return names;
}

TEST(EventRuns, AreFoldersWithTheirFilesInOrderOfTime) {
    const Scratch scratch;
    const std::string name = "events.out.tfevents.";
    put_in(scratch / "runs/b" / (name + "1700000002.host"),
           proto::simple(2, "loss", 20) + proto::simple(3, "loss", 30));
    put_in(scratch / "runs/b" / (name + "1700000001.host"), proto::simple(1, "loss", 1) + proto::simple(2, "loss", 2));
    put_in(scratch / "runs/a" / (name + "1700000001.host"), proto::simple(1, "loss", 5));
    put_in(scratch / "runs/a/hparams.yaml", "seed: 3\n");
    EXPECT_EQ(names_of(find_runs(scratch / "runs"), scratch / "runs"), (Names{"a", "b"}));
    const FoundRun run = read_run(scratch / "runs/b");
    EXPECT_EQ(run.log.at("loss").x, (Numbers{1, 2, 3}));
    EXPECT_EQ(run.log.at("loss").y, (Numbers{1, 20, 30}));
    EXPECT_EQ(read_run(scratch / "runs/a").seed, 3);
    EXPECT_EQ(read_run(scratch / "runs/a" / (name + "1700000001.host")).log.at("loss").y, (Numbers{5}));
    EXPECT_NE(run.digest, read_run(scratch / "runs/a").digest);
}

TEST(EventRuns, OfKerasAreOneRunWithItsSplits) {
    const Scratch scratch;
    for (const char* split : {"train", "validation"})
        put_in(scratch / "logs/fp32" / split / "events.out.tfevents.17.host.v2",
               proto::tensor(4, "epoch_accuracy", proto::number(1, 1) + proto::bytes(5, proto::raw(0.5f))));
    EXPECT_EQ(names_of(find_runs(scratch / "logs"), scratch.path()), (Names{"logs/fp32"}));
    EXPECT_EQ(read_run(scratch / "logs/fp32").log.names(), (Names{"train/accuracy", "validation/accuracy"}));
    EXPECT_EQ(default_metric({"train/accuracy", "validation/accuracy"}), "validation/accuracy");
}

TEST(EventRuns, GiveWayToALogInTheSameFolder) {
    const Scratch scratch;
    put_in(scratch / "r/metrics.csv", "step,acc\n1,0.5\n");
    put_in(scratch / "r/events.out.tfevents.17.host", "whatever");
    EXPECT_EQ(read_run(scratch / "r").log.names(), (Names{"acc", "step"}));
}

TEST(EventRuns, SayWhatIsWrong) {
    const Scratch scratch;
    put_in(scratch / "a/events.out.tfevents.17.host", proto::record(proto::bytes(3, "brain.Event:2")));
    EXPECT_ERROR(read_run(scratch / "a"), IoError, "holds no scalars");
    const std::string good = proto::simple(1, "loss", 2);
    put_in(scratch / "b/events.out.tfevents.17.host", good.substr(0, good.size() - 1) + "?");
    EXPECT_ERROR(read_run(scratch / "b"), IoError, "wrong checksum");
    put_in(scratch / "c/events.out.tfevents.17.host", good + good.substr(0, 20));
    EXPECT_TRUE(has(read_run(scratch / "c").log.note, "ends in the middle of a record"));
}

TEST(HuggingFaceRuns, AreOneWithTheTensorBoardFilesBesideTheirCheckpoints) {
    const Scratch scratch;
    const char* const state = "{\"log_history\": [{\"step\": 1, \"eval_loss\": 1.0}]}";
    put_in(scratch / "out/checkpoint-5/trainer_state.json", state);
    put_in(scratch / "out/checkpoint-10/trainer_state.json", state);
    put_in(scratch / "out/runs/Nov17_host/events.out.tfevents.17.host", proto::simple(1, "eval/loss", 1));
    EXPECT_EQ(names_of(find_runs(scratch / "out"), scratch.path()), (Names{"out/checkpoint-10"}));
    put_in(scratch / "out/trainer_state.json", state);
    EXPECT_EQ(names_of(find_runs(scratch / "out"), scratch.path()), (Names{"out"}));
}

// ---- MLflow ----

TEST(MlflowRuns, AreReadFromTheirMetricFiles) {
    const Scratch scratch;
    const fs::path run = scratch / "mlruns/123/abc";
    put_in(scratch / "mlruns/123/meta.yaml", "name: x\n");
    put_in(run / "meta.yaml", "lifecycle_stage: active\nstatus: 3\n");
    put_in(run / "metrics/loss", "1700000000001 2.5 0\n1700000000002 1.5 10\n1700000000003 nan 20\n");
    put_in(run / "metrics/val/acc", "1700000000001 0.5 10\n1700000000009 0.75 20\n");
    put_in(run / "metrics/train/lr", "1700000000001 0.1 1 data 8f\n");
    put_in(run / "params/seed", "7");
    put_in(scratch / "mlruns/123/gone/meta.yaml", "lifecycle_stage: deleted\nstatus: 3\n");
    put_in(scratch / "mlruns/123/gone/metrics/loss", "1 2 3\n");
    EXPECT_EQ(names_of(find_runs(scratch / "mlruns"), scratch.path()), (Names{"mlruns/123/abc"}));
    EXPECT_EQ(names_of(find_runs(run / "metrics/val/acc"), scratch.path()), (Names{"mlruns/123/abc"}));
    const FoundRun found = read_run(run);
    EXPECT_EQ(found.log.names(), (Names{"loss", "train/lr", "val/acc"}));
    EXPECT_EQ(found.log.at("val/acc").x, (Numbers{10, 20}));
    EXPECT_EQ(found.log.at("val/acc").y, (Numbers{0.5, 0.75}));
    EXPECT_TRUE(std::isnan(found.log.at("loss").y[2]));
    EXPECT_EQ(found.seed, 7);
    EXPECT_EQ(found.unfinished, "");
    put_in(run / "meta.yaml", "lifecycle_stage: active\nstatus: 5\n");
    EXPECT_EQ(read_run(run).unfinished, "its meta.yaml says KILLED");
}

TEST(MlflowRuns, HaveTheirValuesInOrderOfSteps) {
    std::string note;
    const Series late = parse_mlflow_metric("3 30 2\n1 10 1\n5 25 2\n", "F", note);
    EXPECT_EQ(late.x, (Numbers{1, 2}));
    EXPECT_EQ(late.y, (Numbers{10, 25})) << "what was logged last for a step";
    const Series counted = parse_mlflow_metric("2 0.7 0\n1 0.9 0\n", "F", note);
    EXPECT_EQ(counted.x, (Numbers{1, 2})) << "nobody gave a step";
    EXPECT_EQ(counted.y, (Numbers{0.9, 0.7}));
    EXPECT_EQ(parse_mlflow_metric("1 0.5 100\n", "F", note).x, (Numbers{100}));
    EXPECT_EQ(note, "");
    EXPECT_EQ(parse_mlflow_metric("1 0.5 100\n2 0.", "F", note).y, (Numbers{0.5}));
    EXPECT_EQ(note, "F ends in the middle of line 2, which is left out");
    EXPECT_ERROR(parse_mlflow_metric("1 0.5 1\n1 half 2\n", "F", note), IoError, "F line 2:");
    EXPECT_ERROR(parse_mlflow_metric("1\n", "F", note), IoError, "F line 1:");
}

// ---- W&B ----

constexpr const char* kChart =
    "\"Step\",\"fp32 - val/loss\",\"fp32 - val/loss__MIN\",\"fp32 - val/loss__MAX\",\"bf16 - a - val/loss\",\"bf16 - a "
    "- "
    "val/loss__MIN\",\"bf16 - a - val/loss__MAX\"\n"
    "\"0\",\"2.5\",\"2.4\",\"2.6\",\"\",\"\",\"\"\n"
    "\"10\",\"1.5\",\"1.5\",\"1.5\",\"NaN\",\"\",\"\"\n"
    "\"20\",\"\",\"\",\"\",\"1.25\",\"1.25\",\"1.25\"";

TEST(WandbCharts, HoldARunAColumn) {
    const Scratch scratch;
    put_in(scratch / "export.csv", kChart);
    EXPECT_EQ(names_of(find_runs(scratch / "export.csv"), scratch.path()),
              (Names{"export.csv:fp32", "export.csv:bf16 - a"}));
    EXPECT_EQ(find_runs(scratch.path()).size(), 2u) << "also where it is found in a folder";
    EXPECT_EQ(names_of(find_runs(scratch / "export.csv:bf16*"), scratch.path()), (Names{"export.csv:bf16 - a"}));
    EXPECT_ERROR(find_runs(scratch / "export.csv:fp31"), UsageError, "did you mean 'fp32'");
    const FoundRun fp32 = read_run(scratch / "export.csv:fp32"), bf16 = read_run(scratch / "export.csv:bf16 - a");
    EXPECT_EQ(fp32.log.names(), (Names{"val/loss"}));
    EXPECT_EQ(fp32.log.at("val/loss").x, (Numbers{0, 10}));
    EXPECT_EQ(fp32.log.at("val/loss").y, (Numbers{2.5, 1.5}));
    EXPECT_EQ(bf16.log.at("val/loss").x, (Numbers{10, 20})) << "the last line is whole, though no line end follows";
    EXPECT_TRUE(std::isnan(bf16.log.at("val/loss").y[0]));
    EXPECT_NE(fp32.digest, bf16.digest);
}

TEST(WandbCharts, AreToldFromOtherTables) {
    EXPECT_TRUE(is_wandb_chart("Step,a - loss\n"));
    EXPECT_TRUE(is_wandb_chart("\"trainer/global_step\",\"a - loss\"\n"));
    EXPECT_FALSE(is_wandb_chart("step,loss\n"));
    EXPECT_FALSE(is_wandb_chart("step,a - loss,accuracy\n"));
    EXPECT_FALSE(is_wandb_chart("Step\n"));
    EXPECT_FALSE(is_wandb_chart(""));
    EXPECT_FALSE(is_wandb_chart("{\"a - b\": 1}\n"));
    EXPECT_FALSE(is_wandb_chart("[1, \"a - b\"]\n"));
}

TEST(WandbCharts, SayWhatIsWrong) {
    EXPECT_ERROR(parse_chart_run("Step,a - loss,a - loss\n1,2,3\n", "a", "F"), UsageError,
                 "F: two columns are called \"a - loss\"");
    EXPECT_ERROR(parse_chart_run("Step,a - loss\n1,2,3\n", "a", "F"), IoError, "F line 2: 3 cells");
    EXPECT_ERROR(parse_chart_run("Step,a - loss\nnow,2\n", "a", "F"), IoError, "F line 2: its position \"now\"");
    EXPECT_ERROR(parse_chart_run("Step,a - loss\n1,\n", "a", "F"), IoError, "holds no numbers");
    EXPECT_ERROR(parse_chart_run("Step,a - loss\n1,2\n", "b", "F"), UsageError, "there are a");
    EXPECT_ERROR(parse_chart_run("Step,a - loss\n1,2\n2,fast\n", "a", "F").at("loss"), IoError, "is \"fast\"");
}

TEST(WandbRuns, OfEarlierVersionsHaveAHistoryAndLastValues) {
    const Scratch scratch;
    const fs::path run = scratch / "wandb/offline-run-20240101_000000-abc";
    put_in(run / "files/wandb-summary.json",
           "{\"val_acc\": 0.9, \"best\": 0.95, \"_step\": 20, \"_wandb\": {\"runtime\": 3}}");
    put_in(run / "files/config.yaml", "wandb_version: 1\nseed:\n  desc: null\n  value: 1\n");
    EXPECT_EQ(names_of(find_runs(scratch / "wandb"), scratch / "wandb"), (Names{run.filename().string()}));
    EXPECT_EQ(read_run(run).log.at("val_acc").y, (Numbers{0.9})) << "the last value is all there is";
    EXPECT_EQ(read_run(run).log.at("val_acc").x, (Numbers{20}));
    put_in(run / "wandb-history.jsonl", "{\"val_acc\": 0.5, \"_step\": 10}\n{\"val_acc\": 0.9, \"_step\": 20}\n");
    const FoundRun whole = read_run(run);
    EXPECT_EQ(whole.log.at("val_acc").y, (Numbers{0.5, 0.9}));
    EXPECT_EQ(whole.log.at("best").y, (Numbers{0.95}));
    EXPECT_EQ(whole.seed, 1);
    put_in(run / "files/config.yaml", "wandb_version: 1\nseed:\n    value: 11\nvalue: 3\n");
    EXPECT_EQ(read_run(run).seed, 11);
    put_in(run / "files/config.yaml", "wandb_version: 1\nseed:\n    desc: null\nvalue: 3\n");
    EXPECT_EQ(read_run(run).seed, std::nullopt);
}

// A record in parts as LevelDB's log has them, over blocks of 32 KiB.
void append_record(std::string& file, std::string_view record) {
    bool first = true;
    do {
        std::size_t left = 32768 - file.size() % 32768;
        if (left < 7) file.append(left, '\0'), left = 32768;
        const std::string_view part = record.substr(0, left - 7);
        record.remove_prefix(part.size());
        const char type = char(first ? (record.empty() ? 1 : 2) : record.empty() ? 4 : 3);
        const std::string summed = type + std::string(part);
        const auto sum = std::uint32_t(crc32(0, reinterpret_cast<const Bytef*>(summed.data()), uInt(summed.size())));
        file += proto::raw(sum) + proto::raw(std::uint16_t(part.size())) + summed;
        first = false;
    } while (!record.empty());
}

std::string item(std::string_view key, std::string_view value) {
    return proto::bytes(1, proto::bytes(1, key) + proto::bytes(16, value));
}

std::string wandb_file(int steps, int exit_code) {
    std::string file(":W&B\xe1\xbe\0", 7);
    append_record(file, proto::number(1, 1) + proto::bytes(17, proto::bytes(4, item("seed", "5"))));
    append_record(file, proto::bytes(4, proto::bytes(3, std::string(40000, 'x'))));  // console output over two blocks
    for (int i = 1; i <= steps; ++i)
        append_record(file, proto::bytes(2, item("val_loss", fmt::format("{}", 10.0 / i)) + item("acc", "NaN") +
                                                item("table", "{\"nested\": 1}") +
                                                proto::bytes(2, proto::number(1, std::uint64_t(i)))));
    if (exit_code >= 0) append_record(file, proto::bytes(18, proto::number(1, std::uint64_t(exit_code))));
    return file;
}

TEST(WandbRuns, KeepTheirHistoryInBlocksOfRecords) {
    const Scratch scratch;
    const fs::path file = scratch / "wandb/offline-run-1-abc/run-abc.wandb";
    put_in(file, wandb_file(2000, 0));
    for (const fs::path& path : {file, file.parent_path()}) {
        const FoundRun run = read_run(path);
        ASSERT_EQ(run.log.at("val_loss").y.size(), 2000u);
        EXPECT_EQ(run.log.at("val_loss").x.back(), 2000.0);
        EXPECT_EQ(run.log.at("val_loss").y.back(), 0.005);
        EXPECT_TRUE(std::isnan(run.log.at("acc").y.front()));
        EXPECT_EQ(run.log.at("table.nested").y.front(), 1.0);
        EXPECT_EQ(run.seed, 5);
        EXPECT_EQ(run.unfinished, "");
    }
    EXPECT_EQ(parse_wandb_file(wandb_file(2, 1), "F").unfinished, "it ended with exit code 1");
    EXPECT_TRUE(has(parse_wandb_file(wandb_file(2, -1), "F").unfinished, "was killed or still runs"));
}

TEST(WandbRuns, PassOverTheEndOfABlockThatIsTooShortForARecord) {
    for (std::size_t left = 0; left <= 9; ++left) {
        std::string file(":W&B\xe1\xbe\0", 7);
        append_record(file, proto::bytes(4, std::string(32768 - left - 14 - 4, 'x')));
        ASSERT_EQ(file.size(), 32768 - left);
        append_record(file, proto::bytes(2, item("loss", "0.5") + item("_step", "3")));
        const FoundRun run = parse_wandb_file(file, "F");
        EXPECT_EQ(run.log.at("loss").x, (Numbers{3})) << left;
        EXPECT_EQ(run.log.note, "") << left;
    }
}

TEST(WandbRuns, SayWhatIsWrong) {
    const std::string good = wandb_file(3, 0);
    EXPECT_ERROR(parse_wandb_file("nothing of W&B's", "F"), IoError, "does not begin as");
    EXPECT_ERROR(parse_wandb_file(good.substr(0, 7), "F"), IoError, "holds no history");
    std::string damaged = good;
    damaged[40] = char(damaged[40] ^ 1);
    EXPECT_ERROR(parse_wandb_file(damaged, "F"), IoError, "is damaged");
    const FoundRun torn = parse_wandb_file(std::string_view(good).substr(0, good.size() - 3), "F");
    EXPECT_EQ(torn.log.note, "F ends in the middle of a record, which is left out");
    EXPECT_NE(torn.unfinished, "");
    for (std::size_t cut = 0; cut < good.size(); cut += 13) {
        try {
            parse_wandb_file(std::string_view(good).substr(0, cut), "F");
        } catch (const IoError&) {
        }
    }
}

}  // namespace
}  // namespace invar
