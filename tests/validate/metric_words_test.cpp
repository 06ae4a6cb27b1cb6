// Which way is better, by the words of a metric's name.
#include "invar/validate/metric_words.h"

#include <gtest/gtest.h>

#include <sstream>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

Words listed(const char* text) {
    std::istringstream names(text);
    Words words;
    for (std::string name; names >> name;) words.push_back(name);
    return words;
}

TEST(MetricWords, AreFoundHoweverTheyAreJoined) {
    EXPECT_EQ(metric_words("val/Top1_Error"), (Words{"val", "top1", "error"}));
    EXPECT_EQ(metric_words("valLoss"), (Words{"val", "loss"}));
    EXPECT_EQ(metric_words("metrics/mAP50-95(B)"), (Words{"metrics", "map50", "95", "b"}));
    EXPECT_EQ(metric_words("recall@5"), (Words{"recall", "at", "5"}));
    EXPECT_EQ(metric_words("macroAUC"), (Words{"macro", "auc"}));
    EXPECT_EQ(metric_words("AUCMacro"), (Words{"auc", "macro"}));
    EXPECT_EQ(metric_words(""), (Words{""}));
    const std::string_view line = "val_accuracy,0.9";
    EXPECT_EQ(metric_words(line.substr(0, 7)), (Words{"val", "acc"})) << "what follows is not part of the name";
}

TEST(MetricDirection, IsLowerForErrorsDistancesAndCosts) {
    for (const std::string& lower :
         listed("val_loss loss valloss valLoss val_loss_epoch loss_iou dice_loss test/wer CER val_ter val_mer "
                "val_der eer val_eer val_far far frr fpr val_fnr false_positive_rate eval_perplexity ppl val_pplx "
                "val.rmse val_mse val_mae val_mape smape msle nrmse top1_error top5_err error_rate train_nll "
                "negative_log_likelihood neg_log_likelihood bpc bpb val_bpd bits_per_byte bits_per_dim test-fid kid "
                "fvd lpips ece val_ece mce brier brier_score fid_score brier_score_loss hamming_distance hamming "
                "edit_distance levenshtein "
                "hausdorff hd95 chamfer wasserstein kl_divergence kl cross_entropy bce regret cumulative_regret crps "
                "val_epe ade fde mpjpe nme latency latency_ms time eval_runtime inference_time ms_per_step "
                "memory_bytes mcd val_per accuracy_gap accuracy_drop log_loss cost silog abs_rel"))
        EXPECT_EQ(direction_of(lower), Better::lower) << lower;
}

TEST(MetricDirection, IsHigherForScores) {
    for (const std::string& higher :
         listed("val_accuracy val_acc val_acc_epoch Test.Acc testacc top1 top5 acc1 acc@1 val/hmean f1 answer_f1 "
                "F1Score f1_macro auc roc_auc auroc auprc mAP50 map mAP50-95 val_ap75 iou mIoU dice bleu BLEU-4 "
                "rouge1 rougeL meteor chrf psnr ssim r2 r2_score precision recall recall_at_fpr recall@5 tpr_at_fpr "
                "ndcg@10 mrr reward episode_return score win_rate success_rate exact_match pass@1 kappa mcc pearsonr "
                "spearman "
                "elbo log_likelihood neg_mean_squared_error error_reduction samples_per_second throughput pesq stoi "
                "si_sdr explained_variance sensitivity specificity"))
        EXPECT_EQ(direction_of(higher), Better::higher) << higher;
}

TEST(MetricDirection, IsAskedForWhereTheNameDoesNotSay) {
    for (const std::string& unclear :
         listed("power fidelity certainty berries val_x entropy acc_stderr loss_std time_to_accuracy 1-ssim "
                "entfidelity"))
        EXPECT_EQ(direction_of(unclear), std::nullopt) << unclear;
    EXPECT_EQ(direction_of(""), std::nullopt);
    EXPECT_ERROR(need_direction("power"), UsageError, "say it with --direction lower or --direction higher");
    EXPECT_EQ(parse_direction("lower"), Better::lower);
    EXPECT_ERROR(parse_direction("up"), UsageError, "--direction up");
}

}  // namespace
}  // namespace invar
