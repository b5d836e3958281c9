/* SPDX-License-Identifier: Apache-2.0 */
/* fake_driver.h - the number of GPUs of the fake libcuda.so.1. */
#ifndef SHUNT_TESTS_FAKE_DRIVER_H
#define SHUNT_TESTS_FAKE_DRIVER_H

extern int fake_driver_gpus;
int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);

#endif
