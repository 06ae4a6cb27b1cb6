#include "invar/validate/metric_words.h"

#include <cctype>

namespace invar {

namespace {

// Lists as is_one_of reads them.

// Errors of every kind: whatever stands beside them (top1_error, dice_loss, accuracy_gap), they are to be small.
constexpr std::string_view kErrors =
    " loss losses error errors err errs gap regret fail fails misclassification distortion resid residual ";

constexpr std::string_view kLower =
    " "
    // likelihoods and entropies
    "perplexity ppl pplx nll nlpd ce xent crossentropy logloss bce deviance kl kld divergence jsd bits "
    "bpc bpb bpd bpp bpt bpw crps aic bic "
    // regression
    "mae mse rmse nrmse msle rmsle mape smape mase wape wmape medae mdae rse rrse rae l1 l2 huber "
    "pinball quantile absrel sqrel silog chi2 mre "
    // speech and text
    "wer cer ter mer der eer hter ser pier wil mcd hamming levenshtein edit perplexities "
    // detection and verification
    "far frr fpr fnr fdr fpr95 apcer bpcer acer mindcf false miss mr "
    // images, shapes, motion
    "fid kid fvd fad sfid lpips dists niqe brisque piqe hausdorff hd hd95 asd assd chamfer emd "
    "wasserstein mmd epe ade fde minade minfde mpjpe pampjpe nme sad distance dist "
    // calibration, clusters, cost
    "ece mce ace brier calibration davies bouldin cost costs penalty violation violations toxicity wrong "
    "incorrect mistakes collisions imbalance "
    // time and space
    "latency time runtime seconds sec secs ms duration elapsed memory bytes rss vram ttft tpot ";

constexpr std::string_view kHigher =
    " "
    // classification
    "accuracy accuracies acc top correct f1 f2 fbeta fscore fmeasure hmean gmean precision prec recall "
    "sensitivity specificity tpr tnr ppv npv auc auroc auprc roc aucroc rocauc prauc aupr gini kappa mcc "
    "matthews match em balanced "
    // detection and segmentation
    "map ap mar ar iou miou fwiou giou dice dsc jaccard pq hota mota idf1 pck oks nds "
    // ranking
    "ndcg dcg mrr hits hit hr cmc "
    // text and speech
    "bleu sacrebleu gleu rouge rougel rougelsum meteor chrf comet bertscore cider spice pesq stoi estoi "
    "mos sdr sisdr snr sisnr pass passk "
    // images, regression, clusters
    "psnr ssim msssim vmaf inception clipscore r2 correlation corr pearson pearsonr spearman spearmanr kendall pcc "
    "srcc "
    "plcc explained nmi ari ami purity silhouette likelihood ll loglik elbo similarity cosine "
    // reinforcement and speed
    "reward rewards return returns success successes win wins winrate elo fitness utility "
    "profit sharpe throughput speed speedup fps mfu qps ";

// They turn the meaning of the rest round: neg_mean_squared_error, accuracy_drop, one_minus_ssim.
constexpr std::string_view kOpposite = " neg negative minus inverse reduction drop decrease degradation ";
// The spread of a metric is not the metric, and who is to say which way it should go.
constexpr std::string_view kUnclear = " std stddev stderr var variance ";
constexpr std::string_view kSeconds = " s sec second minute min hour h ";

// The word itself, or without the number at its end: "map50", "rouge1", "acc5".
bool is_or_begins(std::string_view word, std::string_view words) {
    if (is_one_of(word, words)) return true;
    const std::size_t letters = word.find_last_not_of("0123456789") + 1;
    return letters > 1 && is_one_of(word.substr(0, letters), words);
}

// How many letters of "valloss" belong to "val".
std::size_t split_length(std::string_view word) {
    for (const std::string_view split : {"train", "valid", "val", "test", "eval", "dev"})
        if (word.starts_with(split) && is_one_of(word.substr(split.size()), " loss acc accuracy error err "))
            return split.size();
    return 0;
}

}  // namespace

Words metric_words(std::string_view name) {
    Words words;
    const auto add = [&](std::string_view part) {
        // A whole part that is known ("mAP50", "mIoU") is one word; otherwise capitals begin new ones ("valLoss").
        std::string lower;
        for (const char c : part) lower += char(std::tolower(static_cast<unsigned char>(c)));
        if (const std::size_t n = split_length(lower); n > 0) {
            words.insert(words.end(), {lower.substr(0, n), lower.substr(n)});
            return;
        }
        if (is_or_begins(lower, kErrors) || is_or_begins(lower, kLower) || is_or_begins(lower, kHigher)) {
            words.push_back(std::move(lower));
            return;
        }
        const auto upper = [&](std::size_t i) { return std::isupper(static_cast<unsigned char>(part[i])) != 0; };
        std::size_t begin = 0;
        for (std::size_t i = 1; i < part.size(); ++i)
            if (upper(i) && (!upper(i - 1) ||
                             (i + 1 < part.size() && std::islower(static_cast<unsigned char>(part[i + 1])) != 0))) {
                words.push_back(lower.substr(begin, i - begin));
                begin = i;
            }
        if (begin < part.size()) words.push_back(lower.substr(begin));
    };
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= name.size(); ++i) {
        const bool part_of_word =
            i < name.size() && (std::isalnum(static_cast<unsigned char>(name[i])) != 0 || (name[i] & 0x80) != 0);
        if (part_of_word) continue;
        if (i > begin) add(name.substr(begin, i - begin));
        if (i < name.size() && name[i] == '@') words.emplace_back("at");
        begin = i + 1;
    }
    if (words.empty()) words.emplace_back();
    return words;
}

std::optional<Better> direction_by(const Words& all) {
    if (all.front() == "1") return std::nullopt;  // 1 - ssim
    // What follows "at" and "per" tells where it was measured: recall_at_fpr, bits_per_byte. A name that ends in "per"
    // means the phone error rate.
    Words words;
    bool rate = false, phones = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const bool last = i + 1 == all.size();
        if (i > 0 && !last && (all[i] == "at" || all[i] == "per")) {
            rate = all[i] == "per" && is_one_of(all[i + 1], kSeconds);
            break;
        }
        if (last && all[i] == "per") phones = true;
        words.push_back(all[i]);
    }
    // A score is good where nothing else is said: a brier_score is not.
    bool score = false;
    bool error = false, lower = phones, higher = false, opposite = false;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (is_one_of(word, kUnclear) && (i == 0 || words[i - 1] != "explained")) return std::nullopt;
        opposite = opposite != is_one_of(word, kOpposite);
        score = score || word == "score" || word == "scores";
        const std::string pair = i + 1 < words.size() ? words[i] + words[i + 1] : "";
        error = error || is_or_begins(word, kErrors) || word.ends_with("loss");
        lower = lower || is_or_begins(word, kLower) || is_one_of(pair, kLower);
        higher = higher || is_or_begins(word, kHigher) || is_one_of(pair, kHigher) || word.ends_with("accuracy");
    }
    if (!error && lower == higher) {
        if (lower || (!score && !rate)) return std::nullopt;  // both, or neither; samples_per_second is a rate
        return opposite ? Better::lower : Better::higher;
    }
    const bool small = error || lower;
    return small != opposite ? Better::lower : Better::higher;
}

}  // namespace invar
