// Program and Instance for Python; errors become the classes of satchel.errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <map>

#include "../runtime/errors.h"
#include "../runtime/instance.h"
#include "result_buffers.h"

namespace nb = nanobind;
using namespace satchel;

namespace {

using InputArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

void translate(const std::exception_ptr& pointer, void*) {
  // The classes live in Python, where users catch them.
  const auto raise = [](const char* name, auto&&... arguments) {
    nb::object type = nb::module_::import_("satchel.errors").attr(name);
    nb::object error = type(std::forward<decltype(arguments)>(arguments)...);
    PyErr_SetObject(type.ptr(), error.ptr());
  };
  // A message may name a file, and a file's name may be any bytes.
  const auto text = [](const std::exception& e) {
    const std::string_view what = e.what();
    return nb::steal(
        PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "surrogateescape"));
  };
  try {
    std::rethrow_exception(pointer);
  } catch (const ChecksumError& e) {
    raise("ChecksumError", text(e), e.advice, e.section, e.offset);
  } catch (const FormatError& e) {
    raise("ProgramFormatError", text(e), e.advice, e.section, e.offset);
  } catch (const TokenizerError& e) {
    raise("TokenizerError", text(e), e.advice);
  } catch (const CacheFullError& e) {
    raise("CacheFullError", text(e));
  } catch (const ExecutionError& e) {
    raise("ExecutionError", text(e));
  }
}

DType dtype_of(const InputArray& array) {
  const nb::dlpack::dtype d = array.dtype();
  for (const auto& [match, dtype] : {std::pair{nb::dtype<float>(), DType::f32},
                                     {nb::dtype<int32_t>(), DType::i32},
                                     {nb::dtype<int64_t>(), DType::i64},
                                     {nb::dtype<int8_t>(), DType::i8},
                                     {nb::dtype<uint8_t>(), DType::u8},
                                     {nb::dtype<bool>(), DType::boolean}}) {
    if (d == match) return dtype;
  }
  if (d.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) && d.bits == 16)
    return DType::f16;
  throw ExecutionError("an input has a dtype that programs do not use");
}

nb::dlpack::dtype numpy_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return nb::dtype<float>();
    case DType::i32:
      return nb::dtype<int32_t>();
    case DType::i64:
      return nb::dtype<int64_t>();
    case DType::i8:
      return nb::dtype<int8_t>();
    case DType::u8:
      return nb::dtype<uint8_t>();
    case DType::boolean:
      return nb::dtype<bool>();
    case DType::f16:
      break;
  }
  return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
}

// An output of a run that nobody else changes any more.
struct Result {
  DType dtype;
  std::vector<size_t> shape;
  ResultBuffers::Owned buffer;
};

Result copied(Instance& instance, const ArrayView& view) {
  size_t bytes = dtype_size(view.dtype);
  for (const int64_t dim : view.shape) bytes *= static_cast<size_t>(dim);
  Result result{view.dtype, {view.shape.begin(), view.shape.end()}, ResultBuffers::take(bytes)};
  uint8_t* target = result.buffer->bytes.get();
  instance.cpu().copy(static_cast<const uint8_t*>(view.data), bytes, target);
  return result;
}

nb::object as_array(Result result) {
  uint8_t* data = result.buffer->bytes.get();
  nb::capsule owner(result.buffer.get(), ResultBuffers::give_back);
  result.buffer.release();  // the capsule's from here on
  return nb::cast(nb::ndarray<nb::numpy>(data, result.shape.size(), result.shape.data(), owner,
                                         nullptr, numpy_dtype(result.dtype)));
}

// Integers choose rows and places. They are checked and then used, so that another thread must not
// be able to change them in between.
bool must_not_change(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

nb::list run(Instance& instance, size_t method, const std::vector<InputArray>& arrays) {
  std::vector<ArrayView> inputs;
  std::vector<std::vector<int64_t>> copies;  // of 64 bits, for alignment
  for (const InputArray& array : arrays) {
    ArrayView view{dtype_of(array), {}, array.data()};
    for (size_t i = 0; i < array.ndim(); ++i)
      view.shape.push_back(static_cast<int64_t>(array.shape(i)));
    if (must_not_change(view.dtype)) {
      std::vector<int64_t>& copy = copies.emplace_back(array.nbytes() / sizeof(int64_t) + 1);
      if (array.nbytes() > 0) std::memcpy(copy.data(), view.data, array.nbytes());
      view.data = copy.data();
    }
    inputs.push_back(std::move(view));
  }
  std::vector<Result> results;
  {
    nb::gil_scoped_release release;
    // Held until the outputs are copied, because another thread's call would overwrite them; and
    // not while Python objects are made: that may collect others, whose ends wait for locks of
    // threads that wait for this one.
    const std::lock_guard<std::recursive_mutex> lock(instance.mutex());
    for (const ArrayView& view : instance.run(method, inputs))
      results.push_back(copied(instance, view));
  }
  nb::list list;
  for (Result& result : results) list.append(as_array(std::move(result)));
  return list;
}

// Does something with the sequences while no method runs.
template <typename Work>
auto guarded(Instance& instance, Work work) {
  nb::gil_scoped_release release;
  const std::lock_guard<std::recursive_mutex> lock(instance.mutex());
  return work(instance.sequences());
}

const StateInfo& cache_info(const Instance& instance, size_t state) {
  const std::vector<StateInfo>& states = instance.program().states();
  if (state >= states.size() || !states[state].is_cache)
    throw ExecutionError("there is no such cache");
  return states[state];
}

// A cache's rows of a sequence, [heads, rows, bytes of a row].
nb::object read_sequence(Instance& instance, size_t state, int32_t sequence, int64_t rows) {
  const StateInfo& info = cache_info(instance, state);
  const size_t row = static_cast<size_t>(info.shape[2]) * dtype_size(info.dtype);
  guarded(instance, [&](Sequences& s) { s.pages(sequence, rows); });  // or it throws
  const size_t shape[] = {static_cast<size_t>(info.shape[0]), static_cast<size_t>(rows), row};
  auto* data = new uint8_t[shape[0] * shape[1] * shape[2]];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  guarded(instance, [&](Sequences& s) { s.read(state, sequence, rows, data); });
  return nb::cast(nb::ndarray<nb::numpy, uint8_t>(data, 3, shape, owner));
}

using Bytes3 = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void write_sequence(Instance& instance, size_t state, int32_t sequence, const Bytes3& rows) {
  const StateInfo& info = cache_info(instance, state);
  const size_t row = static_cast<size_t>(info.shape[2]) * dtype_size(info.dtype);
  if (rows.shape(0) != static_cast<size_t>(info.shape[0]) || rows.shape(2) != row) {
    throw ExecutionError("the rows do not fit the cache " + info.name);
  }
  const auto count = static_cast<int64_t>(rows.shape(1));
  guarded(instance, [&](Sequences& s) { s.write(state, sequence, count, rows.data()); });
}

// What runs where: (method, executor, first node, last node, values in, values out).
nb::list parts_of(const Instance& instance) {
  nb::list list;
  const std::vector<Method>& methods = instance.program().methods();
  for (size_t m = 0; m < methods.size(); ++m) {
    for (const PartInfo& part : instance.placement().parts[m]) {
      const std::string& executor = instance.executors()[part.executor]->name();
      list.append(nb::make_tuple(methods[m].name, executor, part.first, part.last,
                                 part.takes.size(), part.gives.size()));
    }
  }
  return list;
}

nb::tuple take_profile(Instance& instance) {
  Profile profile;
  {
    nb::gil_scoped_release release;
    const std::lock_guard<std::recursive_mutex> lock(instance.mutex());
    for (const auto& executor : instance.executors()) profile.add(executor->take_profile());
  }
  nb::dict ops, layers;
  for (const auto& [op, row] : profile.ops())
    ops[op.c_str()] = nb::make_tuple(row.calls, row.seconds);
  for (const auto& [layer, row] : profile.layers()) {
    layers[layer.c_str()] = nb::make_tuple(row.calls, row.seconds, row.multiply_adds);
  }
  return nb::make_tuple(ops, layers);
}

nb::dict describe(const Program& program, const Method& method) {
  const auto value_dict = [&](const ValueInfo& v) {
    nb::list shape;
    for (const int64_t dim : v.shape) {
      if (dim >= 0) {
        shape.append(dim);
      } else {
        const SymbolInfo& symbol = method.symbols[static_cast<size_t>(-1 - dim)];
        shape.append(nb::make_tuple(symbol.name, symbol.maximum));
      }
    }
    nb::dict d;
    d["name"] = v.name;
    d["dtype"] = dtype_name(v.dtype);
    d["shape"] = shape;
    return d;
  };
  nb::list inputs, outputs;
  nb::dict ops;
  for (const uint32_t id : method.inputs) inputs.append(value_dict(method.values[id]));
  for (const uint32_t id : method.outputs) outputs.append(value_dict(method.values[id]));
  std::map<std::string, int> counts;
  for (const NodeInfo& node : method.nodes) ++counts[node.op->name];
  for (const auto& [name, count] : counts) ops[name.c_str()] = count;
  nb::dict d;
  d["name"] = method.name;
  d["inputs"] = inputs;
  d["outputs"] = outputs;
  d["ops"] = ops;
  d["nodes"] = method.nodes.size();
  d["arena_bytes"] = method.arena_size;
  d["weight_bytes_read"] = program.weight_bytes_read(method);
  return d;
}

nb::bytes digest_bytes(const Digest& digest) { return nb::bytes(digest.data(), digest.size()); }

}  // namespace

void bind_program(nb::module_& m) {
  nb::register_exception_translator(translate);
  m.def("ops", &op_names, "The ops that the native core runs.");

  nb::class_<Program>(m, "Program", "A valid program file; its weights are not read until used.")
      .def_static("open",
                  [](const nb::bytes& path) {  // as the system names it
                    const std::string name(path.c_str(), path.size());
                    nb::gil_scoped_release release;
                    return std::make_shared<Program>(name);
                  })
      .def_prop_ro("size", [](const Program& p) { return p.file().size(); })
      .def("sections",
           [](const Program& p) {
             nb::list list;
             for (const SectionRecord& s : p.file().sections()) {
               nb::dict d;
               d["name"] = s.name;
               d["offset"] = s.offset;
               d["size"] = s.size;
               d["digest"] = digest_bytes(s.digest);
               list.append(d);
             }
             return list;
           })
      .def("section_bytes",
           [](const Program& p, const std::string& name) {
             for (const SectionRecord& s : p.file().sections()) {
               if (s.name == name)
                 return nb::bytes(reinterpret_cast<const char*>(p.file().bytes(s)), s.size);
             }
             throw nb::key_error(name.c_str());
           })
      .def("weights",
           [](const Program& p) {
             const SectionRecord& data = p.file().section(SectionKind::weights);
             nb::list list;
             for (const WeightEntry& w : p.file().weights()) {
               nb::dict d;
               d["name"] = w.name;
               d["encoding"] = w.kind_name();
               d["shape"] = w.shape;
               d["group"] = w.group;
               d["offset"] = data.offset + w.offset;
               d["codes_size"] = w.codes_size;
               d["scales_offset"] = w.scales_size ? data.offset + w.scales_offset : 0;
               d["scales_size"] = w.scales_size;
               d["digest"] = digest_bytes(w.digest);
               list.append(d);
             }
             return list;
           })
      .def("methods",
           [](const Program& p) {
             nb::list list;
             for (const Method& method : p.methods()) list.append(describe(p, method));
             return list;
           })
      .def("states", [](const Program& p) {
        nb::list list;
        for (const StateInfo& s : p.states()) {
          nb::dict d;
          d["name"] = s.name;
          d["cache"] = s.is_cache;
          d["dtype"] = dtype_name(s.dtype);
          d["shape"] = s.shape;
          d["bytes"] = s.bytes;
          list.append(d);
        }
        return list;
      });

  nb::class_<Executor>(m, "Executor", "Runs parts of methods. It serves one instance.")
      .def_prop_ro("name", &Executor::name);
  m.def(
      "cpu_executor",
      [](std::string name, std::set<std::string> ops, int threads) -> std::shared_ptr<Executor> {
        return std::make_shared<CpuExecutor>(threads,
                                             CpuExecutor::Beside{std::move(name), std::move(ops)});
      },
      nb::arg("name"), nb::arg("ops"), nb::arg("threads") = 1,
      "An executor on the CPU with memory of its own, which takes the ops that it names.");

  nb::class_<Instance>(m, "Instance", "A program being run: states, arena and threads.")
      .def(
          "__init__",
          [](Instance* self, std::shared_ptr<Program> program, int threads, uint64_t cache_memory,
             std::vector<std::shared_ptr<Executor>> executors) {
            new (self) Instance(std::move(program), threads, cache_memory, std::move(executors));
          },
          nb::arg("program"), nb::arg("threads") = 0, nb::arg("cache_memory") = 0,
          nb::arg("executors") = std::vector<std::shared_ptr<Executor>>())
      .def("run", &run, nb::arg("method"), nb::arg("inputs"))
      .def(
          "run_chain",
          [](Instance& i, size_t method, std::vector<int32_t> tokens,
             std::vector<int32_t> positions, std::vector<int32_t> sequences,
             std::vector<TokenRule> rules, std::vector<float> random) {
            const std::lock_guard<std::recursive_mutex> lock(i.mutex());
            return i.run_chain(method, {std::move(tokens), std::move(positions),
                                        std::move(sequences), std::move(rules), std::move(random)});
          },
          nb::arg("method"), nb::arg("tokens"), nb::arg("positions"), nb::arg("sequences"),
          nb::arg("rules"), nb::arg("random"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "reset",
          [](Instance& i) {
            const std::lock_guard<std::recursive_mutex> lock(i.mutex());
            i.reset();
          },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "start_profile",
          [](Instance& i) {
            const std::lock_guard<std::recursive_mutex> lock(i.mutex());
            for (const auto& executor : i.executors()) executor->start_profile();
          },
          nb::call_guard<nb::gil_scoped_release>())
      .def("take_profile", &take_profile)
      .def("open_sequence",
           [](Instance& i) { return guarded(i, [](Sequences& s) { return s.open(); }); })
      .def("fork_sequence",
           [](Instance& i, int32_t from, int64_t rows) {
             return guarded(i, [&](Sequences& s) { return s.fork(from, rows); });
           })
      .def("truncate_sequence",
           [](Instance& i, int32_t sequence, int64_t rows) {
             guarded(i, [&](Sequences& s) { s.truncate(sequence, rows); });
           })
      .def("close_sequence",
           [](Instance& i, int32_t sequence) {
             guarded(i, [&](Sequences& s) { s.close(sequence); });
           })
      .def("read_sequence", &read_sequence)
      .def("write_sequence", &write_sequence)
      .def("cache_usage",
           [](Instance& i) {
             const CacheUsage usage = guarded(i, [](Sequences& s) { return s.usage(); });
             nb::dict d;
             d["pages"] = usage.pages;
             d["most_pages"] = usage.most_pages;
             d["page_bytes"] = usage.page_bytes;
             d["sequences"] = usage.sequences;
             return d;
           })
      .def_prop_ro("threads", [](Instance& i) { return i.cpu().threads(); })
      .def_prop_ro("kernels", [](Instance& i) { return i.cpu().kernels(); })
      .def_prop_ro("parts", &parts_of)
      .def_prop_ro("device_memory", &Instance::device_memory)
      .def_prop_ro("refusals", [](const Instance& i) {
        nb::list list;
        for (const Refusal& r : i.placement().refusals)
          list.append(nb::make_tuple(r.executor, r.op, r.reason, r.nodes));
        return list;
      });
}
