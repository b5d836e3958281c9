/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c - a plugin of the real NCCL without any function.
 */
int shunt_test_plugin;
