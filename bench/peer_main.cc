// Assay for the scripts of bench/: one command a line on standard input, one answer a line on
// standard output, so that a script can time Assay and another program turn by turn, or count
// instructions.
//
//   load PATH TENSOR    reads a 2-D tensor of f32, f16 or bf16        → "ok ROWS COLS DTYPE"
//   threads N                                                         → "ok"
//   encode FORMAT       encodes it, keeps the planes                  → seconds: wall, CPU
//   decode DTYPE        decodes the kept planes to F32, F16 or BF16   → seconds: wall, CPU
//   copy                copies the tensor's bytes                     → seconds: wall, CPU
//   save FOLDER         the kept planes in upstream's layout          → "ok"
//   dump FILE           the bytes that decode made                    → "ok"
//   dump-planes FILE    the bytes of the kept planes, one after another → "ok"
//   product VARIANT M K N COPIES   prepares x · W^T on so many copies of a synthetic weight
//                                                            → "ok ID BYTES IMPLEMENTATION"
//   multiply ID         one call, on the next copy                    → seconds: wall, CPU
//   read MIB            a plain sum over the next MIB of a buffer ten times as large
//                                                                     → seconds: wall, CPU
//   formats                                       → the names of those that can encode
//   compiler                                      → "gcc 12.2.0"
//   target                                        → the instruction set that runs

#include <chrono>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "assay/base/aligned_buffer.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/checkpoint/model.h"
#include "assay/checkpoint/writer.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/format.h"
#include "assay/kernels/matmul.h"
#include "assay/measure/machine.h"
#include "assay/measure/read_probe.h"
#include "assay/studies/bench_shapes.h"
#include "assay/studies/bench_weights.h"

namespace assay {
namespace {

class Peer {
 public:
  std::string Answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    std::string first;
    std::string second;
    words >> command >> first >> second;
    if (command == "load") return Load(first, second);
    if (command == "threads") {
      SetNumThreads(std::stoi(first));
      return "ok";
    }
    if (command == "encode") {
      const FormatPtr format = Format::Parse(first);
      const MatrixView matrix = Matrix();
      return Time([&] { encoded_ = format->Encode(matrix, {.tensor_name = name_}); });
    }
    if (command == "decode") return Decode(first);
    if (command == "copy") {
      copy_.resize(tensor_.bytes().size());
      return Time([&] { std::memcpy(copy_.data(), tensor_.bytes().data(), copy_.size()); });
    }
    if (command == "save") return Save(first);
    if (command == "dump") {
      std::ofstream(first, std::ios::binary)
          .write(reinterpret_cast<const char*>(decoded_.data()),
                 static_cast<std::streamsize>(decoded_.size()));
      return "ok";
    }
    if (command == "dump-planes") {
      std::ofstream file(first, std::ios::binary);
      for (const Plane& plane : encoded_.planes) {
        file.write(reinterpret_cast<const char*>(plane.tensor.bytes().data()),
                   static_cast<std::streamsize>(plane.tensor.num_bytes()));
      }
      return "ok";
    }
    if (command == "product") return Prepare(first, second, words);
    if (command == "multiply") {
      Product& product = products_.at(static_cast<size_t>(std::stoul(first)));
      Matmul& copy = *product.copies[product.calls++ % product.copies.size()];
      return Time([&] { product.Run(copy); });
    }
    if (command == "read") {
      if (!probe_) probe_.emplace(std::stoll(first) << 20, 10);
      return Time([&] { probe_->Read(reads_++); });
    }
    if (command == "formats") return Encoders();
    if (command == "compiler") return DescribeMachine().compiler;
    if (command == "target") return ActiveTargetName();
    ThrowUsage("unknown command \"{}\"", command);
  }

 private:
  template <typename Action>
  static std::string Time(const Action& action) {
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu_begin = std::clock();
    action();
    const double cpu = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return fmt::format("{} {}", wall, cpu);
  }

  static std::string Encoders() {
    std::string names;
    for (const FormatFamily* family : FormatCatalogue()) {
      for (const std::string& name : family->names()) {
        if (Format::Parse(name)->CanEncode()) names += name + ' ';
      }
    }
    return names;
  }

  MatrixView Matrix() const {
    return MatrixView(tensor_.view(), tensor_.shape()[0], tensor_.shape()[1]);
  }

  std::string Load(const std::string& path, const std::string& name) {
    name_ = name;
    tensor_ = Model::Open(path).Load(name);
    if (tensor_.shape().rank() != 2) ThrowInput("{}: expected two dimensions", name);
    return fmt::format("ok {} {} {}", tensor_.shape()[0], tensor_.shape()[1],
                       NameOf(tensor_.dtype()));
  }

  std::string Decode(const std::string& dtype_name) {
    const auto dtype = ParseDType(dtype_name);
    if (!dtype || encoded_.format == nullptr) ThrowUsage("decode: encode first, then a dtype");
    decoded_.Resize(static_cast<size_t>(encoded_.rows * encoded_.cols * BitsOf(*dtype) / 8));
    return Time([&] {
      encoded_.format->DecodeRowsTo(encoded_, 0, encoded_.rows, *dtype,
                                    std::span(decoded_.data(), decoded_.size()));
    });
  }

  std::string Save(const std::string& folder) const {
    const CheckpointForm* form = encoded_.format->Form();
    if (form == nullptr) ThrowUsage("{}: no upstream holds it", encoded_.format->Name());
    ShardPlan shard{"model.safetensors", {}, form->ShardMetadata()};
    for (const Plane& plane : encoded_.planes) {
      shard.tensors.push_back(
          {form->TensorName(name_, plane.name), plane.tensor.dtype(), plane.tensor.shape()});
    }
    const auto writer = SafetensorsWriter::ToFolder(folder, {shard});
    for (const Plane& plane : encoded_.planes) {
      writer->Write(form->TensorName(name_, plane.name), plane.tensor.bytes());
    }
    nlohmann::json config = nlohmann::json::object();
    form->WriteConfig(config, *encoded_.format,
                      {{name_, encoded_.format, encoded_.rows, encoded_.cols}});
    writer->AddFile("config.json", config.dump(2));
    writer->Commit();
    return "ok";
  }

  struct Product {
    std::vector<std::unique_ptr<Matmul>> copies;
    Tensor x;
    std::vector<float> y;
    size_t calls = 0;

    void Run(Matmul& copy) {
      copy.Run(x.shape()[0], x.bytes(), std::as_writable_bytes(std::span(y)));
    }
  };

  std::string Prepare(const std::string& spec, const std::string& m, std::istringstream& words) {
    int64_t k = 0;
    int64_t n = 0;
    int64_t copies = 0;
    words >> k >> n >> copies;
    if (copies < 1) ThrowUsage("product: expected VARIANT M K N COPIES");
    const BenchVariant variant = ParseBenchVariant(spec);
    const Tensor weight = SyntheticBenchWeight(n, k, 42);
    const EncodedMatrix encoded =
        variant.format->Encode(MatrixView(weight.view(), n, k), {.tensor_name = "peer"});
    Product product;
    product.x = SyntheticBenchInput(std::stoll(m), k, 43);
    product.y.resize(static_cast<size_t>(product.x.shape()[0] * n));
    for (int64_t copy = 0; copy < copies; ++copy) {
      product.copies.push_back(MakeMatmul(CopyOfPlanes(encoded), variant.strategy));
    }
    product.Run(*product.copies.front());
    const std::string implementation = product.copies.front()->Implementation();
    products_.push_back(std::move(product));
    return fmt::format("ok {} {} {}", products_.size() - 1, encoded.NumBytes(), implementation);
  }

  std::vector<Product> products_;
  std::optional<ReadProbe> probe_;
  int64_t reads_ = 0;
  std::string name_;
  Tensor tensor_;
  EncodedMatrix encoded_;
  AlignedBuffer<std::byte> decoded_;  // as a Tensor's bytes lie
  std::vector<std::byte> copy_;
};

}  // namespace
}  // namespace assay

int main() {
  try {
    assay::SelectTargetFromEnvironment();
    assay::Peer peer;
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << peer.Answer(line) << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << "assay_peer: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
