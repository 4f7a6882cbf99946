// SPDX-License-Identifier: Apache-2.0
//
// A C++ library as an extension of Python would have it: it calls back into Python, and calls witness() itself.
#include "witness.h"

#include <functional>
#include <memory>
#include <stdexcept>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define KEEP_FRAME __asm__ volatile("")

namespace
{

typedef void (*Callback)(unsigned long sequence, int depth);

struct Operator {
    virtual ~Operator() = default;
    virtual void forward(unsigned long sequence, int depth) = 0;
};

struct PythonOperator : Operator {
    Callback callback;

    explicit PythonOperator(Callback callback) : callback(callback)
    {
    }
    void forward(unsigned long sequence, int depth) override
    {
        callback(sequence, depth);
        KEEP_FRAME;
    }
};

struct NativeOperator : Operator {
    void forward(unsigned long sequence, int depth) override
    {
        if (depth > 0)
            forward(sequence, depth - 1);
        else
            witness(sequence);
        KEEP_FRAME;
    }
};

} // namespace

// Calls back through a virtual function and a function object.
EXPORT void mixed_call_back(Callback callback, unsigned long sequence, int depth)
{
    std::unique_ptr<Operator> python = std::make_unique<PythonOperator>(callback);
    std::function<void(int)> call = [&](int depth) { python->forward(sequence, depth); };

    call(depth);
}

// Calls back after an exception was thrown and caught.
EXPORT void mixed_call_back_after_exception(Callback callback, unsigned long sequence, int depth)
{
    try {
        throw std::runtime_error("caught at once");
    } catch (const std::exception &) {
        callback(sequence, depth);
    }
}

EXPORT void mixed_witness(unsigned long sequence, int depth)
{
    std::unique_ptr<Operator> native = std::make_unique<NativeOperator>();

    native->forward(sequence, depth);
}
