#include "invar/config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <set>
#include <sstream>

#include "invar/core/error.h"
#include "invar/core/printable.h"

namespace invar {
namespace {

// Builds the tree from yaml-cpp's events: nothing is expanded that the bounds have not seen first.
class TreeBuilder final : public YAML::EventHandler {
  public:
    explicit TreeBuilder(const std::string& origin) : origin_(origin) {}

    YamlNode take() { return std::move(root_); }

    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add_leaf(YamlNode::Kind::null, "", mark); }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
        fail<UsageError>("{}:{}: aliases (*name) are not supported; write the value out, or quote a text with '*'",
                         origin_, line(mark));
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
        refuse_tag(mark, tag);
        add_leaf(YamlNode::Kind::scalar, value, mark);
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                         YAML::EmitterStyle::value) override {
        open(mark, tag, YamlNode::Kind::list);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                    YAML::EmitterStyle::value) override {
        open(mark, tag, YamlNode::Kind::map);
    }
    void OnMapEnd() override { close(); }

  private:
    struct Open {
        YamlNode node;
        bool has_key = false;  // of a map: the next event is the value of the last key
        std::set<std::string> seen;
    };

    static int line(const YAML::Mark& mark) { return mark.line + 1; }

    void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
        const bool plain = tag.empty() || tag == "?" || tag == "!";  // what yaml-cpp says for plain and quoted scalars
        check<UsageError>(plain, "{}:{}: YAML tags ({}) are not supported; write the value alone", origin_, line(mark),
                          tag.substr(0, 40));
    }

    void open(const YAML::Mark& mark, const std::string& tag, YamlNode::Kind kind) {
        refuse_tag(mark, tag);
        check<UsageError>(static_cast<int>(stack_.size()) < kMaxConfigDepth, "{}:{}: nested deeper than {} levels",
                          origin_, line(mark), kMaxConfigDepth);
        check<UsageError>(!expects_key(), "{}:{}: a key must be a plain word, not a list or a map", origin_,
                          line(mark));
        stack_.emplace_back();
        stack_.back().node.kind = kind;
        stack_.back().node.line = line(mark);
    }

    void close() {
        YamlNode node = std::move(stack_.back().node);
        stack_.pop_back();
        add(std::move(node));
    }

    bool expects_key() const {
        return !stack_.empty() && stack_.back().node.kind == YamlNode::Kind::map && !stack_.back().has_key;
    }

    void add_leaf(YamlNode::Kind kind, const std::string& text, const YAML::Mark& mark) {
        YamlNode node;
        node.kind = kind;
        node.text = text;
        node.line = line(mark);
        add(std::move(node));
    }

    void add(YamlNode node) {
        if (stack_.empty()) {
            root_ = std::move(node);
            return;
        }
        Open& parent = stack_.back();
        if (parent.node.kind == YamlNode::Kind::list) {
            parent.node.items.push_back(std::move(node));
        } else if (parent.has_key) {
            parent.has_key = false;
            parent.node.items.push_back(std::move(node));
        } else {
            check<UsageError>(node.kind == YamlNode::Kind::scalar && !node.text.empty(), "{}:{}: a key is empty",
                              origin_, node.line);
            check<UsageError>(parent.seen.insert(node.text).second, "{}:{}: key '{}' is given twice; keep one", origin_,
                              node.line, node.text.substr(0, 80));
            parent.node.keys.push_back(std::move(node.text));
            parent.has_key = true;
        }
    }

    const std::string& origin_;
    std::vector<Open> stack_;
    YamlNode root_;
};

int line_of(std::string_view text, std::size_t position) {
    return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
}

// How many bytes the UTF-8 character at the front takes; 0 when it is none, or a control character. Marks of writing
// from right to left are part of some languages, and harmless where nothing is printed.
std::size_t character_length(std::string_view text) {
    const Character c = first_character(text);
    const bool control =
        c.code < 0x20 || (c.code >= 0x7f && c.code < 0xa0) || c.code == 0x2028 || c.code == 0x2029 || c.code == 0xfeff;
    return control && c.code != '\t' && c.code != '\n' && c.code != '\r' ? 0 : c.bytes;
}

// What the parser missed, in words of our own; it names some forty faults, of which people make these.
const char* expected_instead_of(const std::string& fault) {
    using namespace YAML::ErrorMsg;
    // Not constexpr: some releases of yaml-cpp declare these messages plainly const.
    const std::pair<const char*, const char*> kWords[] = {
        {END_OF_MAP_FLOW, "a closing }"},
        {END_OF_SEQ_FLOW, "a closing ]"},
        {FLOW_END, "no closing bracket, since none is open,"},
        {EOF_IN_SCALAR, "a closing quote"},
        {TAB_IN_INDENTATION, "spaces at the beginning of the line instead of a tab"},
        {MAP_VALUE, "one `key: value` a line; quote a text that holds a colon"},
        {MAP_KEY, "a key without '?'"},
        {BLOCK_ENTRY, "no '-' behind a key; begin the list on the next line"},
        {END_OF_MAP, "`key: value`, as far to the right as its neighbours"},
        {END_OF_SEQ, "`- entry`, as far to the right as its neighbours"},
        {UNKNOWN_ANCHOR, "an anchor (&name) before its alias (*name)"},
    };
    for (const auto& [known, words] : kWords)
        if (fault == known) return words;
    return "`key: value`; check brackets, quotes and indentation";
}

// What stands at a place, in quotes.
std::string text_at(std::string_view text, const YAML::Mark& mark) {
    const auto begin = static_cast<std::size_t>(std::max(mark.pos, 0));
    if (begin >= text.size()) return "the end of the file";
    const std::string_view rest = text.substr(begin, std::min<std::size_t>(text.find('\n', begin) - begin, 40));
    return rest.empty() ? "the end of the line" : fmt::format("'{}'", rest);
}

}  // namespace

std::size_t find_non_text(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = character_length(text.substr(i));
        if (length == 0) return i;
        i += length;
    }
    return std::string_view::npos;
}

YamlNode parse_yaml(std::string_view text, const std::string& origin) {
    check<UsageError>(text.size() <= kMaxConfigBytes, "{}: too large for a configuration (over {} KiB)", origin,
                      kMaxConfigBytes / 1024);
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte-order mark, as Windows editors leave
    // yaml-cpp takes some control characters for the end of the file; what follows must not be lost in silence.
    const std::size_t bad = find_non_text(text);
    check<UsageError>(
        bad == std::string_view::npos, "{}:{}: not a text file (byte 0x{:02x}); configurations are UTF-8 YAML", origin,
        line_of(text, std::min(bad, text.size())), bad < text.size() ? static_cast<unsigned char>(text[bad]) : 0);
    // yaml-cpp takes a line end at the end of the file for a missing closing quote.
    text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
    std::istringstream stream{std::string(text)};
    TreeBuilder builder(origin);
    try {
        YAML::Parser parser(stream);
        if (!parser.HandleNextDocument(builder)) return {};
        YamlNode root = builder.take();
        TreeBuilder rest(origin);
        check<UsageError>(!parser.HandleNextDocument(rest), "{}: holds more than one YAML document; keep one", origin);
        return root;
    } catch (const YAML::Exception& error) {
        const char* expected = expected_instead_of(error.msg);
        if (error.mark.is_null()) fail<UsageError>("{}: not YAML: expected {}", origin, expected);
        fail<UsageError>("{}:{}:{}: not YAML: expected {}, found {}", origin, error.mark.line + 1,
                         error.mark.column + 1, expected, text_at(text, error.mark));
    }
}

std::string quote_yaml(const std::string& text) {
    const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/'; };
    const bool simple = !text.empty() && (std::isalnum(static_cast<unsigned char>(text[0])) || text[0] == '/') &&
                        std::all_of(text.begin(), text.end(), plain) && text != "null" && text != "Null" &&
                        text != "NULL";
    if (simple) return text;
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') quoted += '\\';
        if (c == '\n')
            quoted += "\\n";
        else if (c == '\r')
            quoted += "\\r";
        else if (c == '\t')
            quoted += "\\t";
        else
            quoted += c;
    }
    return quoted + '"';
}

}  // namespace invar
