// What a probe of a PyTorch run says, as rows for tables, as sentences, as one JSON object and as an HTML page; and
// what two of them say of each other.
#pragma once

#include "invar/diagnose/probe_compare.h"
#include "invar/diagnose/probe_diagnosis.h"

namespace invar {

// "ok", "over", "under", "digits"; "nan" where nothing is finite; "scale" where FP8 serves with a power of two of its
// own; "-" where it is not held in the format.
std::string verdict_word(const ProbeRow& row, std::size_t format);
// What the words mean, on two lines.
std::string verdict_words();

std::string scale_sentence(const ProbeDiagnosis& diagnosis);
// What a scaler went through; "" where it skipped nothing.
std::string skips_sentence(const ProbeDiagnosis& diagnosis);
std::string healthy_sentence(const ProbeDiagnosis& diagnosis);
// That more may come to light, where the run was held in the format already; else "".
std::string patch_note(const ProbeDiagnosis& diagnosis);
std::string parting_sentence(const ProbeComparison& comparison);

std::string json_probe(const ProbeDiagnosis& diagnosis);
std::string html_probe(const ProbeDiagnosis& diagnosis, const std::string& patch);

std::string json_comparison(const ProbeComparison& comparison);
std::string html_comparison(const ProbeComparison& comparison);

}  // namespace invar
