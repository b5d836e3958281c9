/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c - see place.h.
 */
#include "place.h"

size_t place_draw_count(uint64_t *state, size_t most)
{
    static const size_t awkward[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 127, 1000, 4097};
    size_t count = awkward[data_below(state, sizeof awkward / sizeof awkward[0])];
    if (data_below(state, 3) == 0)
        count = 1 + data_below(state, most);
    return count < most ? count : most;
}

bool place_make(place_t *p, const coll_t *k, uint32_t rank, bool in_place, uint64_t *local)
{
    const size_t width = alg_type_bytes((alg_type_t)k->c.type);
    const size_t in = coll_input_count(k, rank), out = coll_output_count(k, rank);
    *p = (place_t){0};
    in_place = in_place && in && out;
    const bool in_larger = in_place && in > out;
    if (in && (!in_place || in_larger) &&
        !data_buffer_make(&p->input, in * width, data_below(local, 16 / width) * width))
        return false;
    if (out && !in_larger && !data_buffer_make(&p->output, out * width, data_below(local, 16 / width) * width))
        return false;
    p->from = p->input.data;
    p->to = p->output.data;
    const ptrdiff_t at = coll_in_place_at(k, rank) * (ptrdiff_t)width;
    if (in_larger)
        p->to = p->input.data - at;
    else if (in_place)
        p->from = p->output.data + at;
    if (in)
        coll_fill(k, rank, (void *)p->from);
    return true;
}

bool place_right(const place_t *p, const coll_t *k, uint32_t rank, char *fault, size_t fault_bytes)
{
    return coll_right(k, rank, p->to, fault, fault_bytes) && (!p->input.base || data_buffer_guarded(&p->input)) &&
           (!p->output.base || data_buffer_guarded(&p->output));
}

void place_free(place_t *p)
{
    data_buffer_free(&p->input);
    data_buffer_free(&p->output);
}
