// The Vision Transformer: patches of an image as tokens behind a class token, learned positions, pre-norm blocks of
// attention and a GELU layer, a linear head. Modules have timm's names, files its layouts; torchvision's files fit too.
#include "invar/core/error.h"
#include "invar/models/models.h"
#include "invar/models/registry.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"

namespace invar {

namespace {

constexpr double kDeviation = 0.02, kEps = 1e-6;

Tensor drawn(const Shape& shape, double deviation) {
    const PurposeScope purpose(Purpose::weights);
    return ops::normal(shape, 0, deviation);
}

// A linear layer as timm draws it. (Its normal distribution is cut off at 100 deviations, which no number reaches.)
class Projection : public Linear {
  public:
    Projection(std::int64_t in, std::int64_t out, Activation activation = Activation::none)
        : Linear(in, out, true, {}, activation) {
        draw_normal(*this, kDeviation);
    }
};

// A convolution whose windows do not overlap is one product of the patches; its weight lies as a convolution's does.
class PatchProjection : public Linear {
  public:
    PatchProjection(std::int64_t patch, std::int64_t channels, std::int64_t width)
        : Linear(patch * patch * channels, width) {
        weight.layout = {{width, patch, patch, channels}, {0, 3, 1, 2}, {width, channels, patch, patch}};
    }
};

// [n, height, width, channels] to [n, patches, width], row by row.
class PatchEmbedding : public Module {
  public:
    PatchEmbedding(const VitOptions& o, const ImageShape& image)
        : patch_(o.patch), image_(image), proj_(add<PatchProjection>("proj", o.patch, image.channels, o.width)) {}

    Tensor forward(const Tensor& x) override {
        check<UsageError>(
            x.rank() == 4 && x.size(1) == image_.height && x.size(2) == image_.width && x.size(3) == image_.channels,
            "model vit was made for images [n, {}, {}, {}], not {}", image_.height, image_.width, image_.channels,
            x.shape().str());
        const std::int64_t rows = image_.height / patch_, columns = image_.width / patch_;
        const Tensor cut = ops::reshape(x, {x.size(0), rows, patch_, columns, patch_, image_.channels});
        const Shape patches{x.size(0), rows * columns, patch_ * patch_ * image_.channels};
        return proj_(ops::reshape(ops::permute(cut, {0, 1, 3, 2, 4, 5}), patches));
    }

  private:
    std::int64_t patch_;
    ImageShape image_;
    PatchProjection& proj_;
};

class Attention : public Module {
  public:
    explicit Attention(const VitOptions& o)
        : heads_(o.heads),
          dropout_(o.attention_dropout),
          qkv_(add<Projection>("qkv", o.width, 3 * o.width)),
          proj_(add<Projection>("proj", o.width, o.width)) {}
    Tensor forward(const Tensor& x) override {
        return proj_(ops::self_attention(qkv_(x), heads_, heads_, {.dropout = training() ? dropout_ : 0.0}));
    }

  private:
    std::int64_t heads_;
    double dropout_;
    Projection &qkv_, &proj_;
};

class Mlp : public Module {
  public:
    Mlp(const VitOptions& o, std::int64_t hidden)
        : dropout_(o.dropout),
          fc1_(add<Projection>("fc1", o.width, hidden, Activation::gelu)),
          fc2_(add<Projection>("fc2", hidden, o.width)) {}
    Tensor forward(const Tensor& x) override { return fc2_(ops::dropout(fc1_(x), dropout_, training())); }

  private:
    double dropout_;
    Projection &fc1_, &fc2_;
};

std::int64_t hidden_of(const VitOptions& o) {
    return std::int64_t(double(o.width) * o.mlp_ratio);
}

// The residual stream and what the last layer adds to it go from block to block apart, so that each sum is made with
// the norm behind it.
class Block : public Module {
  public:
    explicit Block(const VitOptions& o)
        : dropout_(o.dropout),
          norm1_(add<LayerNorm>("norm1", o.width, kEps)),
          attn_(add<Attention>("attn", o)),
          norm2_(add<LayerNorm>("norm2", o.width, kEps)),
          mlp_(add<Mlp>("mlp", o, hidden_of(o))) {}

    Tensors forward(const Tensors& stream) override {
        Tensors read = stream.size() == 1 ? Tensors{stream[0], norm1_(stream[0])} : norm1_(stream);
        read = norm2_(read[0], ops::dropout(attn_(read[1]), dropout_, training()));
        return {read[0], ops::dropout(mlp_(read[1]), dropout_, training())};
    }

  private:
    double dropout_;
    LayerNorm& norm1_;
    Attention& attn_;
    LayerNorm& norm2_;
    Mlp& mlp_;
};

// torchvision's name for what timm, and we, call otherwise.
std::string from_torchvision(std::string name) {
    struct Renamed {
        std::string_view theirs, ours;
    };
    static constexpr Renamed kOutside[] = {{"class_token", "cls_token"},
                                           {"conv_proj.", "patch_embed.proj."},
                                           {"encoder.pos_embedding", "pos_embed"},
                                           {"encoder.layers.encoder_layer_", "blocks."},
                                           {"encoder.ln.", "norm."},
                                           {"heads.head.", "head."}};
    static constexpr Renamed kInside[] = {{".ln_1.", ".norm1."},
                                          {".ln_2.", ".norm2."},
                                          {".self_attention.in_proj_", ".attn.qkv."},
                                          {".self_attention.out_proj.", ".attn.proj."},
                                          {".mlp.0.", ".mlp.fc1."},
                                          {".mlp.3.", ".mlp.fc2."},
                                          {".mlp.linear_1.", ".mlp.fc1."},
                                          {".mlp.linear_2.", ".mlp.fc2."}};
    for (const Renamed& part : kOutside)
        if (name.starts_with(part.theirs)) name.replace(0, part.theirs.size(), part.ours);
    if (!name.starts_with("blocks.")) return name;
    for (const Renamed& part : kInside)
        if (const std::size_t at = name.find(part.theirs); at != std::string::npos)
            name.replace(at, part.theirs.size(), part.ours);
    return name;
}

class Vit : public Module {
  public:
    Vit(const VitOptions& o, const ImageShape& image, std::int64_t classes)
        : options_(o),
          image_(image),
          classes_(classes),
          cls_token_(add_parameter("cls_token", drawn({1, 1, o.width}, 1e-6))),
          pos_embed_(add_parameter(
              "pos_embed", drawn({1, 1 + (image.height / o.patch) * (image.width / o.patch), o.width}, kDeviation))),
          patch_embed_(add<PatchEmbedding>("patch_embed", o, image)),
          blocks_(add<ModuleList>("blocks")) {
        for (std::int64_t i = 0; i < o.layers; ++i) blocks_.append(std::make_unique<Block>(o));
        norm_ = &add<LayerNorm>(o.pool == "mean" ? "fc_norm" : "norm", o.width, kEps);
        head_ = &add<Projection>("head", o.width, classes);
    }

    Tensor forward(const Tensor& images) override {
        const Tensor patches = patch_embed_(images);
        const Tensor first = ops::expand(cls_token_.value, {images.size(0), 1, options_.width});
        const Tensor x = ops::cat({first, patches}, 1) + pos_embed_.value;
        Tensors stream{ops::dropout(x, options_.dropout, training())};
        for (Module* block : blocks_) stream = (*block)(stream);
        return (*head_)(pooled(stream));
    }
    std::unique_ptr<Module> new_instance() const override { return std::make_unique<Vit>(options_, image_, classes_); }
    std::vector<Module*> checkpoint_blocks() override { return blocks_.checkpoint_blocks(); }
    std::string own_name(const std::string& in_file) const override { return from_torchvision(in_file); }

  private:
    // What the head reads: the class token behind the norm, or the norm of the mean over the patches.
    Tensor pooled(const Tensors& stream) {
        const auto at_first = [](const Tensor& x) { return ops::squeeze(ops::slice(x, 1, 0, 1), 1); };
        if (options_.pool == "cls") return (*norm_)(at_first(stream[0]), at_first(stream[1]))[1];
        const Tensor patches = ops::slice(stream[0] + stream[1], 1, 1, stream[0].size(1));
        return (*norm_)(ops::mean(patches, {1}));
    }

    VitOptions options_;
    ImageShape image_;
    std::int64_t classes_;
    Parameter &cls_token_, &pos_embed_;
    PatchEmbedding& patch_embed_;
    ModuleList& blocks_;
    LayerNorm* norm_ = nullptr;
    Projection* head_ = nullptr;
};

using O = VitOptions;
const RegisterModel<O> kVit{
    "vit",
    "The Vision Transformer, of any size.",
    make_vit,
    {key("patch", &O::patch, within(1, 4096), "Side of a patch; it divides both sides of the image.",
         {"model.patch_size"}),
     key("layers", &O::layers, within(1, 1000), "Blocks.", {"model.depth"}),
     key("heads", &O::heads, within(1, 1000), "Heads of attention; they divide the width.", {"model.num_heads"}),
     key("width", &O::width, within(1, 1 << 20), "Of the residual stream.", {"model.embed_dim"}),
     key("mlp_ratio", &O::mlp_ratio, within(0.001, 1000), "Of the layer between, to the width."),
     key("classes", &O::classes, within(0, 1 << 20), "Outputs; 0 for as many as the data have.", {"model.num_classes"}),
     key("pool", &O::pool, one_of({"cls", "mean"}),
         "What the head reads: the class token, or the mean over the patches.", {"model.global_pool"}),
     key("dropout", &O::dropout, below(0, 1), "Behind embeddings, attention and both layers of a block.",
         {"model.drop_rate"}),
     key("attention_dropout", &O::attention_dropout, below(0, 1), "Of the weights of attention.",
         {"model.attn_drop_rate"})}};

}  // namespace

std::unique_ptr<Module> make_vit(const VitOptions& options, const DataInfo& data) {
    const ImageShape image = image_shape("vit", data);
    check<UsageError>(image.height % options.patch == 0 && image.width % options.patch == 0,
                      "model.patch = {}: does not divide images of {}x{}", options.patch, image.height, image.width);
    check<UsageError>(options.width % options.heads == 0, "model.width = {}: is no multiple of model.heads = {}",
                      options.width, options.heads);
    check<UsageError>(hidden_of(options) >= 1, "model.mlp_ratio = {}: leaves nothing of a width of {}",
                      options.mlp_ratio, options.width);
    check<UsageError>(options.pool == "cls" || options.pool == "mean", "model.pool = '{}': is neither cls nor mean",
                      options.pool);
    return std::make_unique<Vit>(options, image, outputs_for(options.classes, data));
}

}  // namespace invar
