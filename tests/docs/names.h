// What a text names of this program, wherever it stands: keys, commands, their options, precisions, and what is chosen
// by name. Registry holds what there is of each, as the parser, the table of keys and the folders of configurations
// have it.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace invar::docs {

struct Code {
    std::string text;
    std::string where;  // README.md:12
};

// The code of a document: its blocks, but for C++, which is compiled, and what stands between backticks.
std::vector<Code> code_of(const std::filesystem::path& document);
std::vector<Code> code_in(const std::string& markdown, const std::string& name);
// All lines of what the program printed or wrote.
std::vector<Code> lines_of(const std::string& text, const std::string& name);

struct Registry {
    std::map<std::string, std::set<std::string>> options;  // of each command, without their dashes
    std::map<std::string, std::set<std::string>> choices;  // of each group
    std::set<std::string> experiments;
    std::set<std::string> keys, maps;  // in full, with aliases; those that have keys of their own below them
    std::set<std::string> sections;

    // From `invar completion fish`, which is made of the parser, and the table of keys.
    static Registry of_program(const std::string& fish_script, const std::filesystem::path& configs);

    bool has_key(const std::string& written) const;
    bool has_precision(const std::string& written) const;
};

// What a text names and the registry lacks, each with where it stands: "README.md:12: there is no key trainer.turbo".
class NameCheck {
  public:
    // `elsewhere`: words that look like names of ours and are not, each with a reason.
    NameCheck(const Registry& registry, const std::map<std::string, std::string>& elsewhere)
        : registry_(registry), elsewhere_(elsewhere) {}

    void look_at(const std::vector<Code>& code);
    // FP16, BF16, ...: number formats, also in prose, of which each is a precision to train in.
    void look_for_formats(const std::vector<Code>& text);

    const std::vector<std::string>& missing() const { return missing_; }
    int seen(const std::string& kind) const { return seen_.contains(kind) ? seen_.at(kind) : 0; }
    // Those of `elsewhere` that nothing names any more.
    std::vector<std::string> idle() const;

  private:
    void look_for_keys(const Code& code);
    void look_for_commands(const Code& code);
    void look_at_command(const std::string& command, const std::string& words, const std::string& where);
    void look_for_options(const Code& code);
    void look_for_precisions(const Code& code);
    void look_for_choices(const Code& code);
    void note(const std::string& kind, const std::string& word, bool there, const std::string& where);

    const Registry& registry_;
    const std::map<std::string, std::string>& elsewhere_;
    std::set<std::string> excused_;
    std::vector<std::string> missing_;
    std::map<std::string, int> seen_;
};

}  // namespace invar::docs
