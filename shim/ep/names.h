/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - makes the functions of names.def visible: the folder has hidden visibility. */
#ifndef SHUNT_SHIM_EP_NAMES_H
#define SHUNT_SHIM_EP_NAMES_H

#include "shim/experts/nccl_ep.h"

#define SHIM_EP_NAME(name) extern __attribute__((visibility("default"))) __typeof__(ncclEp##name) ncclEp##name;
#include "shim/ep/names.def"

#endif
