// The classifiers of satchel.h over native/vision. No exception leaves a function of this file.
#include <memory>
#include <mutex>

#include "../llm/errors.h"
#include "../llm/verify.h"
#include "../vision/classifier.h"
#include "given.h"
#include "handles.h"
#include "satchel.h"

using namespace satchel;
using namespace satchel::capi;
using namespace satchel::vision;

namespace {

struct ClassifierObject {
  std::mutex mutex;
  std::unique_ptr<Classifier> classifier;
};

// Images are decoded outside of the lock: the classifier has one caller at a time.
template <typename ImageOf>
satchel_status classify(const satchel_classifier* handle, satchel_class* classes, size_t capacity,
                        size_t* count, const ImageOf& image_of) {
  return guarded([&] {
    require(count != nullptr, "the place for the count");
    require(classes != nullptr || capacity == 0, "the place for the classes");
    *count = 0;
    const auto object = handles<ClassifierObject>().find(handle, "classifier");
    const Image image = image_of();
    const std::lock_guard<std::mutex> lock(object->mutex);
    const std::vector<float> scores = object->classifier->scores(image);
    for (const Prediction& one : top_classes(scores, capacity)) {
      classes[(*count)++] = {object->classifier->label(one.index).c_str(),
                             static_cast<uint32_t>(one.index), one.probability};
    }
  });
}

}  // namespace

extern "C" {

satchel_status satchel_classifier_open(const char* path, const satchel_model_options* from,
                                       satchel_classifier** classifier) {
  return guarded([&] {
    require(path != nullptr, "the path");
    require(classifier != nullptr, "the place for the classifier");
    *classifier = nullptr;
    const satchel_model_options options = known_part(from, "the options");
    if (options.threads > 1024) throw ConfigError("there are at most 1024 threads");
    auto made = std::make_shared<ClassifierObject>();
    made->classifier = std::make_unique<Classifier>(path, static_cast<int>(options.threads));
    if (options.verify != 0) llm::verify(made->classifier->program().file());
    *classifier =
        static_cast<satchel_classifier*>(handles<ClassifierObject>().add(std::move(made)));
  });
}

void satchel_classifier_close(satchel_classifier* classifier) {
  handles<ClassifierObject>().remove(classifier);
}

satchel_status satchel_classify(satchel_classifier* classifier, const void* file, size_t size,
                                satchel_class* classes, size_t capacity, size_t* count) {
  return classify(classifier, classes, capacity, count, [&] {
    require(file != nullptr || size == 0, "the file");
    return read_image({static_cast<const uint8_t*>(file), size}, "the file");
  });
}

satchel_status satchel_classify_pixels(satchel_classifier* classifier, const uint8_t* rgb,
                                       uint32_t width, uint32_t height, satchel_class* classes,
                                       size_t capacity, size_t* count) {
  return classify(classifier, classes, capacity, count, [&] {
    require(rgb != nullptr, "the list of pixels");
    check_size(width, height);
    Image image(width, height);
    std::copy_n(rgb, image.rgb.size(), image.rgb.begin());
    return image;
  });
}

}  // extern "C"
