/* own_fields.c: see own_fields.h */
#include "cluster/protocol/own_fields.h"

static void put_u16(uint8_t *out, unsigned value) {
    out[0] = (uint8_t)(value >> 8);
    out[1] = (uint8_t)value;
}
static uint16_t get_u16(const uint8_t *in) {
    return (uint16_t)(in[0] << 8 | in[1]);
}

void own_fields_write(uint8_t out[static BUS_RESERVED_SIZE], const struct own_fields *fields) {
    memset(out, 0, BUS_RESERVED_SIZE);
    out[0] = 'V';
    out[1] = 'R';
    put_u16(out + 2, 1);
    put_u16(out + 4, fields->features >> 16);
    put_u16(out + 6, fields->features & 0xffff);
    put_u16(out + 8, fields->rdma_port);
    put_u16(out + 10, fields->client_rdma_port);
    put_u16(out + 12, fields->members >> 16);
    put_u16(out + 14, fields->members & 0xffff);
}

bool own_fields_read(const uint8_t in[static BUS_RESERVED_SIZE], struct own_fields *fields) {
    *fields = (struct own_fields){0};
    if (in[0] != 'V' || in[1] != 'R' || get_u16(in + 2) == 0) return false;
    fields->features = (uint32_t)get_u16(in + 4) << 16 | get_u16(in + 6);
    fields->rdma_port = get_u16(in + 8);
    fields->client_rdma_port = get_u16(in + 10);
    fields->members = (uint32_t)get_u16(in + 12) << 16 | get_u16(in + 14);
    return true;
}
