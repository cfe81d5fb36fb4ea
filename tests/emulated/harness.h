// SPDX-License-Identifier: Apache-2.0
// Runs a provider's kernel on the emulator under several seeds and compares what it wrote with its
// reference by the contract of design.md. A test is a plain program:
//
//     #include "harness.h"
//     #include "boundary/norm.cuh"
//     extern "C" void lathe_ref_boundary_norm(lathe_ref *r);
//
//     struct Tiny {
//         static constexpr int kRows = 3, kHidden = 64, kCenter = 1, kThreads = 64;
//         static constexpr double kEps = 1e-5;
//     };
//     struct Odd ... struct Real ...
//
//     template <class C>
//     static void check(const char *name) {
//         Kernel k(name, norm<C>, lathe_ref_boundary_norm);
//         LATHE_CONSTANTS(k, C, kRows, kHidden, kCenter, kEps);
//         k.in("s", {C::kRows, C::kHidden}).normal(0, 2);        // in the order of the parameters
//         k.in("gain", {C::kHidden}).normal(0, 0.1);
//         k.out("x", {C::kRows, C::kHidden});
//         k.launch({C::kRows}, C::kThreads, 128);                // grid, threads, shared bytes
//         k.run();
//     }
//     int main() {
//         check<Tiny>("tiny");
//         check<Odd>("odd");
//         check<Real>("real");
//         return finish("boundary/norm");
//     }
//
// Element types come from the parameters. CMakeLists.txt compiles every test_*.cpp here and every
// templates/*/*.ref.c. A failure prints kernel, seed, argument and worst element, and ends the
// program with status 1. All memory is allocated apiece and poisoned, so the sanitizers see what
// lies beyond it.
//
// run() does the following under each seed (3, or LATHE_SEEDS): fills, launches, compares each out
// and inout argument with the reference, demands that zeroed workspaces are zero again and that all
// seeds gave the same bits wherever the reference sets an element. More:
//     k.repeat(3)                  three launches in a row on the same memory
//     k.ranks(2)                   ranks as threads; .per_rank() after an argument gives each rank
//                                  its own values; k.mailbox("mailbox", bytes, timeout_ns)
//     k.cooperative()
//     k.null("aux")                an optional argument that is not bound
//     k.allow("x", 1e-3, "design.md ... line 1: across a fused boundary")
//     k.same_as("x", a, "y")       an argument that is the memory of kernel a's argument y (or its
//                                  mailbox)
//     b.early(); run({&a, &b})     a stream; each kernel is compared on the inputs it really had
//     a.ahead("y")                 what early successors may read before they wait
//     k.in("s", ...).normal().late()   a launch before k writes the argument, and k is launched
//                                  early behind it: for a kernel that calls grid_wait()
//     k.seeds(20), k.fails("text") the run must end in a fault whose message holds the text
//     k.any_seed_differs()         at least one seed must fail the comparison or fault (mutants)
#ifndef LATHE_EMULATED_HARNESS_H
#define LATHE_EMULATED_HARNESS_H

#include "prims.cuh"

#include <cstring>
extern "C" {
#include "reference.h"
}

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace harness {

enum class Type { bf16, f32, f64, i32, i64, u8, u32, e4m3, mailbox };

template <class T>
constexpr Type type_of() {
    using E = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<E, bf16>)
        return Type::bf16;
    else if constexpr (std::is_same_v<E, float>)
        return Type::f32;
    else if constexpr (std::is_same_v<E, double>)
        return Type::f64;
    else if constexpr (std::is_same_v<E, int>)
        return Type::i32;
    else if constexpr (std::is_same_v<E, long long>)
        return Type::i64;
    else if constexpr (std::is_same_v<E, u8>)
        return Type::u8;
    else if constexpr (std::is_same_v<E, u32>)
        return Type::u32;
    else if constexpr (std::is_same_v<E, e4m3>)
        return Type::e4m3;
    else {
        static_assert(std::is_same_v<E, Mailbox>, "not a type of kernel arguments");
        return Type::mailbox;
    }
}

struct Parameter {
    Type type;
    bool is_const;
};

enum class Role { in, out, inout, workspace, mailbox, null };

class Kernel;

// One argument. The calls that fill it return it, so that they may follow each other.
struct Argument {
    std::string name;
    Type type;
    Role role;
    std::vector<int64_t> shape;
    bool is_per_rank = false, is_late = false, zeroed = false;
    uint64_t salt = 0;
    std::vector<std::vector<unsigned char>> initial; // by rank; empty: poison
    Kernel *owner = nullptr;                         // another kernel whose argument this is
    std::string owner_name;
    double tolerance = -1;
    std::string reason;

    int64_t count() const;
    size_t bytes() const;
    // Gives each rank values of its own; before the filling call.
    Argument &per_rank();
    // Poison until an earlier launch, behind which the kernel starts early, has written the values.
    Argument &late();
    Argument &normal(double mean, double deviation);
    Argument &uniform(double low, double high);
    Argument &integers(int64_t low, int64_t high); // both included
    Argument &fill(double value);
    Argument &each(const std::function<double(int rank, int64_t index)> &value);
    Argument &raw(const void *data); // bytes() of them, for every rank
};

class Kernel {
  public:
    // `reference` may be null: then only faults, zeroed workspaces and equal bits are checked.
    template <class... P>
    Kernel(const char *name, void (*entry)(P *...), void (*reference)(lathe_ref *))
        : Kernel(name, reinterpret_cast<void (*)()>(entry),
                 {Parameter{type_of<P>(), std::is_const_v<P>}...}, reference) {
        lathe_emulator_bind_to_harness(lathe_emulator_bind);
    }
    Kernel(const Kernel &) = delete;
    ~Kernel();

    void constant(const char *name, double value, bool is_integer);
    Argument &in(const char *name, std::vector<int64_t> shape);
    Argument &out(const char *name, std::vector<int64_t> shape);
    Argument &inout(const char *name, std::vector<int64_t> shape);
    Argument &workspace(const char *name, std::vector<int64_t> shape, bool zeroed = false);
    Argument &same_as(const char *name, Kernel &other, const char *other_name);
    void null(const char *name);
    void mailbox(const char *name, uint64_t bytes, uint64_t timeout_ns = 10000000000ull);

    void launch(std::vector<uint32_t> grid, uint32_t threads, uint32_t shared_bytes);
    void cooperative();
    void cluster(unsigned blocks); // along x
    void early();
    void ahead(const char *name);
    void repeat(int launches);
    void ranks(int count);
    void seeds(int count);
    void allow(const char *name, double tolerance, const char *reason);
    void fails(const char *text);
    void any_seed_differs();
    void run();

    // What an argument held after the last seed's run.
    const void *result(const char *name, int rank = 0) const;

    struct State;
    std::unique_ptr<State> state;

  private:
    Kernel(const char *name, void (*entry)(), std::vector<Parameter> parameters,
           void (*reference)(lathe_ref *));
    static void
    lathe_emulator_bind_to_harness(unsigned int (*bind)(const lathe_emulator_table *table));
};

// Launches kernels one after the other in one stream, under each seed of the first.
void run(const std::vector<Kernel *> &kernels);

// Says how many runs passed; the program's exit status.
int finish(const char *what);

// Ends the program with a message unless `holds`.
void require(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));

} // namespace harness

using harness::finish;
using harness::Kernel;
using harness::require;

#define LATHE_CONSTANT(k, C, name)                                                                 \
    (k).constant(#name, static_cast<double>(C::name), std::is_integral_v<decltype(C::name)>);
#define LATHE_EACH_1(k, C, a) LATHE_CONSTANT(k, C, a)
#define LATHE_EACH_2(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_1(k, C, __VA_ARGS__)
#define LATHE_EACH_3(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_2(k, C, __VA_ARGS__)
#define LATHE_EACH_4(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_3(k, C, __VA_ARGS__)
#define LATHE_EACH_5(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_4(k, C, __VA_ARGS__)
#define LATHE_EACH_6(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_5(k, C, __VA_ARGS__)
#define LATHE_EACH_7(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_6(k, C, __VA_ARGS__)
#define LATHE_EACH_8(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_7(k, C, __VA_ARGS__)
#define LATHE_EACH_9(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_8(k, C, __VA_ARGS__)
#define LATHE_EACH_10(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_9(k, C, __VA_ARGS__)
#define LATHE_EACH_11(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_10(k, C, __VA_ARGS__)
#define LATHE_EACH_12(k, C, a, ...) LATHE_CONSTANT(k, C, a) LATHE_EACH_11(k, C, __VA_ARGS__)
#define LATHE_PICK(a, b, c, d, e, f, g, h, i, j, k, l, m, ...) m
// Up to 12 constants a call; call again for more. Integral members are integers, others real.
#define LATHE_CONSTANTS(k, C, ...)                                                                 \
    do {                                                                                           \
        LATHE_PICK(__VA_ARGS__, LATHE_EACH_12, LATHE_EACH_11, LATHE_EACH_10, LATHE_EACH_9,         \
                   LATHE_EACH_8, LATHE_EACH_7, LATHE_EACH_6, LATHE_EACH_5, LATHE_EACH_4,           \
                   LATHE_EACH_3, LATHE_EACH_2, LATHE_EACH_1)                                       \
        (k, C, __VA_ARGS__)                                                                        \
    } while (0)

#endif
