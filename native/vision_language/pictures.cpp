#include "pictures.h"

#include <algorithm>

#include "../llm/model.h"

namespace satchel::vision_language {

namespace {

std::vector<std::string> split(const std::string& text, const std::string& mark) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at; (at = text.find(mark, from)) != std::string::npos; from = at + mark.size())
    parts.push_back(text.substr(from, at - from));
  parts.push_back(text.substr(from));
  return parts;
}

}  // namespace

Pictures::Pictures(const llm::Model& model) : model_(model) {
  const llm::Json& about = model.metadata()["images"];
  const auto see = model.find_method("see");
  if (about.object() == nullptr || !see)
    throw ConfigError(model.path() + " does not look at images",
                      "Export a model that does: LLaVA.");
  if (!model.engine().takes_embeddings())
    throw ConfigError("images are looked at on the CPU here", "Use --target cpu.");
  preprocessing_ = Preprocessing::read(about);
  see_ = *see;
  const Method& method = model.program().methods()[see_];
  const std::vector<int64_t> frame{preprocessing_->frame_height(), preprocessing_->frame_width(),
                                   3};
  const auto shape_of = [&](const std::vector<uint32_t>& values) {
    const bool fits = values.size() == 1 && method.values[values[0]].dtype == DType::f32;
    return fits ? method.values[values[0]].shape : std::vector<int64_t>{};
  };
  const std::vector<int64_t> seen = shape_of(method.outputs);
  if (shape_of(method.inputs) != frame || seen.size() != 2 || seen[1] < 1 ||
      seen[0] != preprocessing_->seen_rows())
    damaged();
  hidden_ = seen[1];
  const int64_t* token = about["token"].whole();
  if (token == nullptr || *token < 0 || *token >= llm::kFirstRow) damaged();
  token_ = static_cast<uint32_t>(*token);
  mark_ = model.tokenizer().bytes_of(token_);
  if (mark_.empty())
    throw ConfigError("the tokenizer has no token " + std::to_string(*token) + " for images");
  if (const std::string* source = model.metadata()["tokenizer"]["chat_template"].text()) {
    in_template_ = source->find("'image'") != std::string::npos ||
                   source->find("\"image\"") != std::string::npos;
  }
}

size_t Pictures::marks_in(const std::string& text) const { return split(text, mark_).size() - 1; }

std::string Pictures::plain(const std::string& text, size_t count) const {
  if (marks_in(text) > 0) return text;
  std::string made;
  for (size_t i = 0; i < count; ++i) made += mark_ + "\n";
  return made + text;
}

llm::Message Pictures::message(const std::string& text, size_t count) const {
  if (in_template_ && marks_in(text) == 0) return {"user", text, count};
  return {"user", plain(text, count)};
}

void Pictures::require_room(int64_t rows) const {
  if (rows >= model_.context())
    throw ContextFullError("the images take " + std::to_string(rows) +
                               " tokens, and the context has " + std::to_string(model_.context()),
                           "Show fewer or smaller ones, or export with a larger --context.");
}

llm::Tokens Pictures::tokens(const std::string& text, size_t count, const Open& open,
                             const Encode& encode) {
  const std::vector<std::string> parts = split(text, mark_);
  if (parts.size() != count + 1)
    throw ConfigError("the prompt has " + std::to_string(parts.size() - 1) + " places for " +
                          std::to_string(count) + " images",
                      "Write " + mark_ + " once for each, or not at all.");
  require_room(static_cast<int64_t>(count) * preprocessing_->least_rows());
  std::string whole = parts[0];
  std::vector<std::pair<uint32_t, int64_t>> marks;  // first number, and how many
  Views views;
  int64_t rows = 0;
  for (size_t i = 0; i < count; ++i) {
    const vision::Image picture = open(i);
    const Layout layout = preprocessing_->layout(picture.width, picture.height, count);
    rows += layout.marks * layout.rows_of_mark;
    require_room(rows);
    std::vector<vision::Image> frames = preprocessing_->frames(picture, layout);
    auto next = std::make_move_iterator(frames.begin());
    for (int64_t mark = 0; mark < layout.marks; ++mark, next += layout.frames) {
      View view{layout, {next, next + layout.frames}, {}};
      const uint32_t first = first_number(view);
      marks.emplace_back(first, layout.rows_of_mark);
      views.emplace(first, std::move(view));
    }
    whole += preprocessing_->text_of(layout, mark_) + parts[i + 1];
  }
  for (auto& [first, view] : views) {
    if (const auto seen = views_.find(first); seen != views_.end())
      view.rows = std::move(seen->second.rows);
  }
  views_ = std::move(views);
  llm::Tokens tokens;
  size_t shown = 0;
  for (const uint32_t token : encode(whole)) {
    if (token != token_) {
      tokens.push_back(token);
      continue;
    }
    if (shown == marks.size()) damaged();
    for (int64_t row = 0; row < marks[shown].second; ++row)
      tokens.push_back(marks[shown].first + static_cast<uint32_t>(row));
    ++shown;
  }
  if (shown != marks.size()) damaged();
  return tokens;
}

uint32_t Pictures::first_number(const View& view) {
  Sha256 content;
  // The same frames may be arranged in another way: by the picture's size, and among others.
  const int64_t sizes[] = {view.layout.width, view.layout.height, view.layout.rows,
                           view.layout.columns};
  content.update(sizes, sizeof sizes);
  for (const vision::Image& frame : view.frames) content.update(frame.rgb.data(), frame.rgb.size());
  const auto [known, is_new] = numbers_.try_emplace(content.finish(), next_number_);
  if (is_new) {
    if (view.layout.rows_of_mark > UINT32_MAX - next_number_)
      throw ExecutionError("more images were shown than can be told apart");
    next_number_ += static_cast<uint32_t>(view.layout.rows_of_mark);
  }
  return known->second;
}

void Pictures::look(View& view) {
  Instance& instance = model_.instance();
  const std::vector<int64_t> shape{preprocessing_->frame_height(), preprocessing_->frame_width(),
                                   3};
  std::vector<Rows> seen;
  for (const vision::Image& frame : view.frames) {
    const std::vector<float> pixels = preprocessing_->normalized(frame);
    const std::lock_guard<std::recursive_mutex> lock(instance.mutex());
    const ArrayView made = instance.run(see_, {{DType::f32, shape, pixels.data()}})[0];
    const auto* from = static_cast<const float*>(made.data);
    seen.emplace_back(from, from + made.shape[0] * made.shape[1]);
  }
  view.rows = preprocessing_->arranged(view.layout, std::move(seen));
  view.frames.clear();
}

std::span<const float> Pictures::row(uint32_t number) {
  auto found = views_.upper_bound(number);
  if (found == views_.begin()) throw ExecutionError("the rows of an image are not there any more");
  View& view = (--found)->second;
  const auto place = static_cast<int64_t>(number - found->first);
  if (place >= view.layout.rows_of_mark)
    throw ExecutionError("the rows of an image are not there any more");
  if (view.rows.empty()) look(view);
  return std::span(view.rows).subspan(static_cast<size_t>(place * hidden_),
                                      static_cast<size_t>(hidden_));
}

}  // namespace satchel::vision_language
