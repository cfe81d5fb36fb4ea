// SPDX-License-Identifier: Apache-2.0
// What the harness's sources share.
#ifndef LATHE_EMULATED_STATE_H
#define LATHE_EMULATED_STATE_H

#include "harness.h"
#include "host_emulator.h"

#include <map>
#include <mutex>

struct harness::Kernel::State {
    std::string name;
    void (*entry)();
    std::vector<Parameter> parameters;
    void (*reference)(lathe_ref *);
    std::map<std::string, std::pair<double, bool>> constants; // value, is integer
    std::vector<std::unique_ptr<Argument>> arguments;
    lathe_geometry geometry = {};
    int launches = 1, ranks = 1, seeds = 3;
    uint64_t mailbox_bytes = 0, mailbox_timeout = 0;
    std::string expected_fault;
    bool wants_difference = false;

    // One seed's run, by rank and argument.
    std::vector<std::vector<void *>> memory;
    std::vector<std::vector<std::vector<unsigned char>>> before;
    std::vector<std::vector<unsigned char>> first; // the first seed's outputs
    std::vector<void *> mailbox_memory;

    Argument &find(const std::string &argument);
    int index(const std::string &argument) const;
    Argument &add(const char *argument, Role role, std::vector<int64_t> shape);
    void release();
};

struct lathe_ref {
    harness::Kernel::State *state;
    std::vector<std::vector<std::vector<double>>> out; // by rank and argument
    std::string failure;
};

namespace harness {

int element_bytes(Type type);
double element(Type type, const void *data, int64_t index);
void set_element(Type type, void *data, int64_t index, double value);

// Each returns an empty string, or what is wrong.
std::string compare(const Argument &a, const std::vector<double> &expected, const void *found);
std::string compare_bits(const Argument &a, const std::vector<double> *expected, const void *one,
                         const void *other);

std::string execute(const std::vector<Kernel *> &kernels, uint64_t seed);
std::string judge(Kernel &k, bool first_seed);

} // namespace harness

#endif
