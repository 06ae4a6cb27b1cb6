// The subcommands of `invar`, one file each. A command registers itself with the parser; its work runs in a callback,
// which sets `exit_code` where a run that went through still has something to say by it.
#pragma once

#include <CLI/CLI.hpp>

namespace invar::cli {

void add_train(CLI::App& app, int& exit_code);
void add_validate(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_diagnose(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_data(CLI::App& app, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_init(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_predict(CLI::App& app, int& exit_code);
void add_export(CLI::App& app, int& exit_code);
void add_sample(CLI::App& app, int& exit_code);
void add_runs(CLI::App& app, int& exit_code);
void add_formats(CLI::App& app, int& exit_code);
void add_ops(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_profile(CLI::App& app, int& exit_code);
void add_tokenize(CLI::App& app, int& exit_code);
void add_completion(CLI::App& app, int& exit_code);

}  // namespace invar::cli
