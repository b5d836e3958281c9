/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c - a plugin of the real NCCL that has nothing.
 */
int shunt_test_plugin;
