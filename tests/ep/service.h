/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service.h - a fake of the service in libnccl.so.2, which the test program exports as libnccl.so.2 does. It records
 * its calls and checks that it gets only its own groups and handles.
 */
#ifndef SHUNT_TESTS_EP_SERVICE_H
#define SHUNT_TESTS_EP_SERVICE_H

#include <stdbool.h>

#include "record.h"
#include "shim/experts/service.h"

typedef struct service {
    bool absent;         /* shuntExperts returns NULL */
    bool declines;       /* the next groups are not served */
    ncclResult_t result; /* of all functions */
    ncclResult_t update; /* of handle_update */
    int groups, handles; /* that exist */
    record_t create, handle_bytes, handle_create, handle_update, dispatch, combine, complete;
    /* As the service got them: */
    ncclEpGroupConfig_t config;
    ncclEpDispatchInputs_t dispatch_inputs;
    ncclEpDispatchOutputs_t dispatch_outputs;
    ncclEpLayoutInfo_t layout;
    ncclEpDispatchConfig_t dispatch_config;
    ncclEpCombineInputs_t combine_inputs;
    ncclEpCombineOutputs_t combine_outputs;
    ncclEpCombineConfig_t combine_config;
} service_t;

extern service_t g_service;

enum { SERVICE_HANDLE_BYTES = 4321 };

#endif
