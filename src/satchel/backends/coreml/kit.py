"""A Swift package around a Core ML package: a class that generates text, and an example.

It is written for whoever has Xcode; nothing here compiles Swift.
"""

from __future__ import annotations

import json
from pathlib import Path

from satchel.errors import ConfigError, OutputExistsError, TemplateError
from satchel.program.about import AboutLanguageModel
from satchel.runtime.program import Program

_PACKAGE = """\
// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "SatchelModel",
    platforms: [.iOS("18.0"), .macOS("15.0")],
    products: [.library(name: "SatchelModel", targets: ["SatchelModel"])],
    dependencies: [
        .package(url: "https://github.com/huggingface/swift-transformers", from: "0.1.14")
    ],
    targets: [
        .target(
            name: "SatchelModel",
            dependencies: [.product(name: "Transformers", package: "swift-transformers")],
            resources: [.copy("Resources")]),
        .executableTarget(name: "example", dependencies: ["SatchelModel"]),
    ]
)
"""

_MODEL = """\
import CoreML
import Foundation
import Tokenizers

/// A language model in a Core ML package: prompts in blocks, then one token at a time.
public final class LanguageModel {
    public static let context = @context@
    public static let block = @block@
    public static let ends: Set<Int> = [@ends@]

    private let prefill: MLModel
    private let kv: MLModel
    private let state: MLState
    private let tokenizer: Tokenizer
    private let turns: Turns
    private var position = 0

    /// `package` is the .mlpackage; it is compiled on first use, which takes a while.
    public init(package: URL, units: MLComputeUnits = .@units@) async throws {
        let compiled = try await MLModel.compileModel(at: package)
        func load(_ function: String?) throws -> MLModel {
            let configuration = MLModelConfiguration()
            configuration.functionName = function
            configuration.computeUnits = units
            return try MLModel(contentsOf: compiled, configuration: configuration)
        }
        kv = try load(@kv@)
        prefill = @prefill@
        state = kv.makeState()
        let folder = Bundle.module.resourceURL!.appendingPathComponent("Resources")
        tokenizer = try await AutoTokenizer.from(modelFolder: folder)
        let data = try Data(contentsOf: folder.appendingPathComponent("turns.json"))
        turns = try JSONDecoder().decode(Turns.self, from: data)
    }

    /// Answers a message; `each` is given the text as it comes.
    public func answer(_ message: String, tokens: Int = 256, each: (String) -> Void) throws {
        let text = (position == 0 ? turns.first : turns.next) + message + turns.after
        var logits = try read(tokenizer.encode(text: text, addSpecialTokens: false))
        var answer: [Int] = []
        var shown = ""
        for _ in 0..<tokens {
            let next = best(of: logits)
            if Self.ends.contains(next) || position >= Self.context { break }
            answer.append(next)
            // As a whole: a character may be of several tokens, and a space belong to the next one.
            let written = tokenizer.decode(tokens: answer)
            if !written.hasSuffix("\\u{FFFD}") {
                each(String(written.dropFirst(shown.count)))
                shown = written
            }
            logits = try step(next)
        }
    }

    /// Whole blocks, and a last one that is filled up; near the context's end one by one.
    private func read(_ ids: [Int]) throws -> MLMultiArray {
        precondition(!ids.isEmpty && position + ids.count <= Self.context, "the context is full")
        var left = ids[...]
        var logits: MLMultiArray!
        while !left.isEmpty {
            if Self.block == 1 || position + Self.block > Self.context {
                logits = try step(left.removeFirst())
                continue
            }
            let part = left.prefix(Self.block)
            left = left.dropFirst(part.count)
            let filled = Array(part) + Array(repeating: 0, count: Self.block - part.count)
            logits = try run(
                prefill, tokens: filled, more: ["last": try whole([part.count - 1], [1])])
            position += part.count
        }
        return logits
    }

    private func step(_ token: Int) throws -> MLMultiArray {
        let logits = try run(kv, tokens: [token], more: [:])
        position += 1
        return logits
    }

    private func run(
        _ model: MLModel, tokens: [Int], more: [String: MLMultiArray]
    ) throws -> MLMultiArray {
        var inputs: [String: Any] = more
        inputs["tokens"] = try whole(tokens, [1, tokens.count])
        inputs["position"] = try whole([position], [1])
        let given = try MLDictionaryFeatureProvider(dictionary: inputs)
        return try model.prediction(from: given, using: state)
            .featureValue(for: "logits")!.multiArrayValue!
    }

    private func whole(_ numbers: [Int], _ shape: [Int]) throws -> MLMultiArray {
        let array = try MLMultiArray(shape: shape.map { NSNumber(value: $0) }, dataType: .int32)
        for (index, number) in numbers.enumerated() { array[index] = NSNumber(value: number) }
        return array
    }

    private func best(of logits: MLMultiArray) -> Int {
        var place = 0
        var largest = -Float.infinity
        for index in 0..<logits.count where logits[index].floatValue > largest {
            (place, largest) = (index, logits[index].floatValue)
        }
        return place
    }
}

/// What the chat template writes around a message.
struct Turns: Decodable {
    let first: String
    let next: String
    let after: String
}
"""

_EXAMPLE = """\
import Foundation
import SatchelModel

// swift run example PATH/TO/MODEL.mlpackage "Name a river."
let arguments = CommandLine.arguments
guard arguments.count == 3 else { fatalError("example MODEL.mlpackage PROMPT") }
let model = try await LanguageModel(package: URL(fileURLWithPath: arguments[1]))
try model.answer(arguments[2]) { print($0, terminator: "") }
print()
"""

_README = """\
A Swift package around {name}.

Package.swift                              iOS 18, macOS 15, and newer
Sources/SatchelModel/LanguageModel.swift   loads the package, keeps its state, generates
Sources/SatchelModel/Resources             the tokenizer, and what a chat writes around a turn
Sources/example                            swift run example MODEL.mlpackage "Name a river."

Tokens are read with Hugging Face's swift-transformers. None of this has been compiled or run where
it was written: Core ML is on Apple's systems only. In particular, that the state of one function of
a package is taken by the other is how we read Apple's documents, and not something that was tried.
"""

_MESSAGE, _ANSWER = "MESSAGE\u241f", "ANSWER\u241f"


def chat_turns(program: Program) -> dict[str, str]:
    """What the chat template writes before the first message, before later ones, and after each."""
    from satchel.llm.chat_template import ChatTemplate
    from satchel.llm.tokenizer_sources.spec import TokenizerSpec

    plain = {"first": "", "next": "", "after": ""}
    spec = TokenizerSpec.from_dict(program.metadata["tokenizer"], "")
    if not spec.chat_template:
        return plain
    try:
        template = ChatTemplate(spec.chat_template, spec.special_tokens)
        asked = {"role": "user", "content": _MESSAGE}
        once = template.render([asked])
        told = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": _ANSWER}]
        again = template.render([*told, asked])
    except TemplateError:
        return plain
    first, _, after = once.partition(_MESSAGE)
    between = again.partition(_ANSWER)[2].partition(_MESSAGE)[0]
    return {"first": first, "next": between, "after": after}


def check_kit(folder: Path, is_language_model: bool, stateful: bool) -> None:
    """Refuse a kit that could not be written, before the work that it is to go with."""
    if not is_language_model:
        raise ConfigError("a kit for Core ML is for language models", "Leave --kit out.")
    if not stateful:
        raise ConfigError(
            "the Swift package keeps the conversation in the model's state, which needs iOS 18",
            "Use --target coreml:iOS18, or leave --kit out.",
        )
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{folder} is no folder", "Give --kit another name.")
    if folder.exists() and any(folder.iterdir()):
        raise OutputExistsError(f"{folder} is not empty", "Give --kit another folder.")


def write_kit(program: Program, folder: Path, units: str) -> None:
    """Write the Swift package into a folder that is new or empty."""
    about = program.about
    assert isinstance(about, AboutLanguageModel)
    resources = folder / "Sources" / "SatchelModel" / "Resources"
    resources.mkdir(parents=True)
    (folder / "Sources" / "example").mkdir()
    block = about.prefill_ar_len or 1
    words = {
        "context": about.context,
        "block": block,
        "ends": ", ".join(map(str, program.metadata["tokenizer"]["eos_ids"])),
        "units": {"ane": "cpuAndNeuralEngine", "gpu": "cpuAndGPU"}.get(units, "all"),
        "kv": '"kv"' if block > 1 else "nil",
        "prefill": 'try load("prefill")' if block > 1 else "kv",
    }
    (folder / "Package.swift").write_text(_PACKAGE)
    swift = _MODEL
    for word, value in words.items():
        swift = swift.replace(f"@{word}@", str(value))
    (resources.parent / "LanguageModel.swift").write_text(swift)
    (folder / "Sources" / "example" / "main.swift").write_text(_EXAMPLE)
    (folder / "README.txt").write_text(_README.format(name=about.name))
    (resources / "tokenizer.json").write_bytes(program.section("tokenizer"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (resources / "tokenizer_config.json").write_text(json.dumps(kind))
    turns = json.dumps(chat_turns(program), ensure_ascii=False, indent=1)
    (resources / "turns.json").write_text(turns, encoding="utf-8")
